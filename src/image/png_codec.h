#pragma once

#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace flux2 {

// libpng's two handles and its way of failing. Every call into the library goes through run(), which turns the
// library's longjmp into an Error; a body given to run() must therefore own nothing that needs a destructor.
class PngCodec {
 public:
  enum class Use { Read, Write };

  explicit PngCodec(Use use) : use_(use) {
    png_ = use == Use::Read ? png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning)
                            : png_create_write_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) {
      destroy();
      fail(ErrorCode::OutOfMemory, "PNG: no memory for the codec");
    }
  }
  PngCodec(const PngCodec&) = delete;
  PngCodec& operator=(const PngCodec&) = delete;
  ~PngCodec() { destroy(); }

  png_structp png() { return png_; }
  png_infop info() { return info_; }

  template <class Body>
  void run(Body&& body) {
    if (setjmp(png_jmpbuf(png_)) != 0) {
      const std::string_view words = words_for(message_);
      fail(words == kNoMemory  ? ErrorCode::OutOfMemory
           : use_ == Use::Read ? ErrorCode::BadFile
                               : ErrorCode::Internal,
           "PNG: {}", words);
    }
    body();
  }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngCodec*>(png_get_error_ptr(png));
    std::strncpy(self->message_, message, sizeof self->message_ - 1);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}

  static constexpr std::string_view kNoMemory = "not enough memory", kTruncated = "the file is truncated";

  // Our own words for the library's messages.
  static std::string_view words_for(std::string_view message) {
    struct Known {
      std::string_view part, words;
    };
    constexpr Known kKnown[] = {{kTruncated, kTruncated},
                                {"emory", kNoMemory},
                                {"CRC", "a checksum is wrong: the file is damaged"},
                                {"IHDR", "its header is invalid"},
                                {"PLTE", "its palette is missing or invalid"},
                                {"alette", "its palette is missing or invalid"},
                                {"Not enough", "the image data ends too early"},
                                {"IDAT", "the image data is damaged"},
                                {"istance", "the image data is damaged"},
                                {"filter", "the image data is damaged"}};
    for (const Known& known : kKnown)
      if (message.find(known.part) != message.npos) return known.words;
    return "the file is damaged";
  }

  void destroy() {
    if (use_ == Use::Read) {
      png_destroy_read_struct(&png_, &info_, nullptr);
    } else {
      png_destroy_write_struct(&png_, &info_);
    }
  }

  Use use_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char message_[160] = {};
};

}  // namespace flux2
