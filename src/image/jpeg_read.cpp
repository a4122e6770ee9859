#include <cstdio>  // jpeglib.h needs FILE

#include <jpeglib.h>

#include <jerror.h>  // after jpeglib.h, which says what it defines

#include <csetjmp>

#include "base/error.h"
#include "image/codecs.h"

namespace flux2 {

namespace {

// A progressive file may hold any number of scans, each costing a pass over the whole picture.
constexpr int kMaxScans = 100;

// libjpeg's decompressor and its way of failing. Every call goes through run(), which turns the library's longjmp
// into an Error; a body given to run() must therefore own nothing that needs a destructor.
class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> bytes) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    run([&] { jpeg_create_decompress(&info_); });
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = [](j_decompress_ptr info) -> boolean { fail_with(info, "the file is truncated"); };
    source_.skip_input_data = skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    info_.src = &source_;
    progress_.progress_monitor = [](j_common_ptr info) {
      auto* self = static_cast<JpegReader*>(info->client_data);
      if (self->info_.input_scan_number > kMaxScans) fail_with(&self->info_, "more scans than any real image has");
    };
    info_.progress = &progress_;
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info_); }

  jpeg_decompress_struct* operator->() { return &info_; }
  jpeg_decompress_struct* get() { return &info_; }

  template <class Body>
  void run(Body&& body) {
    if (setjmp(jump_) != 0) fail(out_of_memory_ ? ErrorCode::OutOfMemory : ErrorCode::BadFile, "JPEG: {}", message_);
    body();
  }

 private:
  static void on_error(j_common_ptr info) {
    auto* self = static_cast<JpegReader*>(info->client_data);
    self->out_of_memory_ = info->err->msg_code == JERR_OUT_OF_MEMORY;
    std::snprintf(self->message_, sizeof self->message_, "%s", words_for(info->err->msg_code));
    std::longjmp(self->jump_, 1);
  }

  // Our own words for the library's messages.
  static const char* words_for(int code) {
    switch (code) {
      case JERR_OUT_OF_MEMORY: return "not enough memory";
      case JERR_EMPTY_IMAGE: return "the image has no pixels";
      case JERR_BAD_PRECISION: return "only images with 8 bits per sample are supported";
      case JERR_SOF_UNSUPPORTED:
#if JPEG_LIB_VERSION < 70
      case JERR_ARITH_NOTIMPL:
#endif
      case JERR_CONVERSION_NOTIMPL:
      case JERR_CCIR601_NOTIMPL:
      case JERR_FRACT_SAMPLE_NOTIMPL: return "this kind of JPEG is not supported";
      case JERR_COMPONENT_COUNT: return "the number of its colour components is not supported";
      case JERR_IMAGE_TOO_BIG: return "the image is larger than a JPEG file can store";
      case JERR_NO_HUFF_TABLE:
      case JERR_NO_QUANT_TABLE:
      case JERR_NO_ARITH_TABLE:
      case JERR_BAD_HUFF_TABLE: return "its decoding tables are missing or damaged";
      case JERR_SOS_NO_SOF:
      case JERR_NO_IMAGE: return "the file contains no image";
      case JERR_INPUT_EOF:
      case JERR_INPUT_EMPTY:
      case JWRN_JPEG_EOF: return "the file is truncated";
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_ARITH_BAD_CODE:
      case JWRN_MUST_RESYNC: return "the image data is damaged";
      default: return "the file is damaged";
    }
  }

  [[noreturn]] static void fail_with(j_decompress_ptr info, const char* message) {
    auto* self = static_cast<JpegReader*>(info->client_data);
    std::snprintf(self->message_, sizeof self->message_, "%s", message);
    std::longjmp(self->jump_, 1);
  }

  // After damaged data, the library continues with grey blocks; we report an error. Other warnings (stray bytes between markers,
  // odd version numbers) are common in files that display correctly.
  static void on_message(j_common_ptr info, int level) {
    if (level >= 0) return;
    switch (info->err->msg_code) {
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_ARITH_BAD_CODE:
      case JWRN_MUST_RESYNC:
      case JWRN_JPEG_EOF: on_error(info);
    }
  }

  static void skip(j_decompress_ptr info, long count) {
    if (count <= 0) return;
    if (static_cast<size_t>(count) > info->src->bytes_in_buffer) fail_with(info, "the file is truncated");
    info->src->next_input_byte += count;
    info->src->bytes_in_buffer -= static_cast<size_t>(count);
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_;
  char message_[128] = {};
  bool out_of_memory_ = false;
};

// Files with an Adobe marker store ink inverted; those without store it plainly.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, int64_t width, bool inverted) {
  const unsigned flip = inverted ? 0 : 255;
  for (int64_t i = 0; i < width; ++i, cmyk += 4, rgb += 3) {
    const unsigned light = cmyk[3] ^ flip;
    for (int c = 0; c < 3; ++c) rgb[c] = mul_div_255(cmyk[c] ^ flip, light);
  }
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, const ImageLimits& limits) {
  JpegReader reader(bytes);
  reader.run([&] { jpeg_read_header(reader.get(), TRUE); });
  const int64_t columns = reader->image_width, lines = reader->image_height;
  check_image_size(columns, lines, limits);
  // A block of 64 samples takes at least a bit; arithmetic coding may do better, but not in pictures.
  if (columns * lines / 2048 > static_cast<int64_t>(bytes.size())) {
    fail(ErrorCode::BadFile, "JPEG: the file is truncated: {} bytes for {}×{} pixels", bytes.size(), columns, lines);
  }
  const int width = static_cast<int>(columns), height = static_cast<int>(lines), stored = reader->num_components;
  if (stored != 1 && stored != 3 && stored != 4) {
    fail(ErrorCode::BadFile, "JPEG: images with {} components are not supported", stored);
  }
  reader->out_color_space = stored == 1 ? JCS_GRAYSCALE : stored == 3 ? JCS_RGB : JCS_CMYK;

  // The coefficients of an image with several scans are all kept until the last scan: two bytes for each sample.
  if (jpeg_has_multiple_scans(reader.get())) check_image_size(columns, lines, {.side = limits.side, .pixels = limits.pixels / 2});

  Image image(width, height, stored == 1 ? 1 : 3);
  std::vector<uint8_t> ink(stored == 4 ? static_cast<size_t>(columns) * 4 : 0);  // one row
  reader.run([&] {
    jpeg_start_decompress(reader.get());
    while (reader->output_scanline < reader->output_height) {
      uint8_t* to = image.row(static_cast<int>(reader->output_scanline));
      JSAMPROW row = stored == 4 ? ink.data() : to;
      jpeg_read_scanlines(reader.get(), &row, 1);
      if (stored == 4) cmyk_to_rgb(ink.data(), to, columns, reader->saw_Adobe_marker);
    }
  });
  return image;
}

}  // namespace flux2
