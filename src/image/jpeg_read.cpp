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
      if (self->info_.input_scan_number > kMaxScans) fail_with(&self->info_, "more scans than any real picture has");
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
    if (setjmp(jump_) != 0) fail(ErrorCode::BadFile, "JPEG: {}", message_);
    body();
  }

 private:
  static void on_error(j_common_ptr info) {
    auto* self = static_cast<JpegReader*>(info->client_data);
    info->err->format_message(info, self->message_);
    std::longjmp(self->jump_, 1);
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
  char message_[JMSG_LENGTH_MAX] = {};
};

// Files with an Adobe marker store ink inverted; those without store it plainly.
Image cmyk_to_rgb(const std::vector<uint8_t>& cmyk, int width, int height, bool inverted) {
  Image rgb(width, height, 3);
  const unsigned flip = inverted ? 0 : 255;
  for (size_t i = 0; i < cmyk.size() / 4; ++i) {
    const unsigned light = cmyk[4 * i + 3] ^ flip;
    for (size_t c = 0; c < 3; ++c) rgb.pixels[3 * i + c] = mul_div_255(cmyk[4 * i + c] ^ flip, light);
  }
  return rgb;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, int64_t max_pixels) {
  JpegReader reader(bytes);
  reader.run([&] { jpeg_read_header(reader.get(), TRUE); });
  const int64_t columns = reader->image_width, lines = reader->image_height;
  check_image_size(columns, lines, max_pixels);
  // A block of 64 samples takes at least a bit; arithmetic coding may do better, but not in pictures.
  if (columns * lines / 2048 > static_cast<int64_t>(bytes.size())) {
    fail(ErrorCode::BadFile, "JPEG: the file is truncated: {} bytes for {}×{} pixels", bytes.size(), columns, lines);
  }
  const int width = static_cast<int>(columns), height = static_cast<int>(lines), stored = reader->num_components;
  if (stored != 1 && stored != 3 && stored != 4) {
    fail(ErrorCode::BadFile, "JPEG: images with {} components are not supported", stored);
  }
  reader->out_color_space = stored == 1 ? JCS_GRAYSCALE : stored == 3 ? JCS_RGB : JCS_CMYK;

  std::vector<uint8_t> samples(static_cast<size_t>(columns * lines * stored));
  const size_t row_bytes = static_cast<size_t>(columns * stored);
  reader.run([&] {
    jpeg_start_decompress(reader.get());
    while (reader->output_scanline < reader->output_height) {
      JSAMPROW row = samples.data() + reader->output_scanline * row_bytes;
      jpeg_read_scanlines(reader.get(), &row, 1);
    }
  });
  if (stored == 4) return cmyk_to_rgb(samples, width, height, reader->saw_Adobe_marker);
  Image image;
  image.width = width;
  image.height = height;
  image.channels = stored;
  image.pixels = std::move(samples);
  return image;
}

}  // namespace flux2
