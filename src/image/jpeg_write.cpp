#include <cstdio>  // jpeglib.h needs FILE

#include <jpeglib.h>

#include <csetjmp>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "image/embedded.h"
#include "image/write_image.h"

namespace flux2 {

namespace {

constexpr size_t kMaxMarkerBytes = 65533;
constexpr int kFullColourAbove = 90;

// libjpeg's compressor, the memory it writes to and its way of failing; see JpegReader for the rule of run().
class JpegWriter {
 public:
  JpegWriter() {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = on_error;
    errors_.output_message = [](j_common_ptr) {};
    run([&] {
      jpeg_create_compress(&info_);
      jpeg_mem_dest(&info_, &data_, &size_);
    });
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;
  ~JpegWriter() {
    jpeg_destroy_compress(&info_);
    std::free(data_);
  }

  jpeg_compress_struct* operator->() { return &info_; }
  jpeg_compress_struct* get() { return &info_; }
  std::span<const std::byte> bytes() const { return {reinterpret_cast<const std::byte*>(data_), size_}; }

  template <class Body>
  void run(Body&& body) {
    if (setjmp(jump_) != 0) fail(ErrorCode::Internal, "JPEG: {}", message_);
    body();
  }

 private:
  static void on_error(j_common_ptr info) {
    auto* self = static_cast<JpegWriter*>(info->client_data);
    info->err->format_message(info, self->message_);
    std::longjmp(self->jump_, 1);
  }

  jpeg_compress_struct info_{};
  jpeg_error_mgr errors_{};
  unsigned char* data_ = nullptr;
  unsigned long size_ = 0;
  std::jmp_buf jump_;
  char message_[JMSG_LENGTH_MAX] = {};
};

std::vector<uint8_t> app1(const char* prefix, size_t prefix_size, const void* data, size_t size) {
  std::vector<uint8_t> marker(prefix_size + size);
  if (marker.size() > kMaxMarkerBytes) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("JPEG: a metadata block of {} bytes is too long", size),
                "write PNG, which has no such limit, or less metadata");
  }
  std::memcpy(marker.data(), prefix, prefix_size);
  std::memcpy(marker.data() + prefix_size, data, size);
  return marker;
}

}  // namespace

std::vector<std::byte> encode_jpeg(const Image& image, const ImageMetadata& metadata, int quality) {
  check(quality >= 1 && quality <= 100, "JPEG quality {} is not within 1…100", quality);
  const Image flattened = image.channels == 4 ? to_rgb(image) : Image();
  const Image& shown = image.channels == 4 ? flattened : image;
  const auto exif = exif_block(metadata);
  std::vector<std::vector<uint8_t>> markers;
  if (!exif.empty()) markers.push_back(app1("Exif\0", 6, exif.data(), exif.size()));
  if (!metadata.xmp.empty()) {
    markers.push_back(app1(kJpegXmpPrefix, sizeof kJpegXmpPrefix, metadata.xmp.data(), metadata.xmp.size()));
  }

  JpegWriter writer;
  writer.run([&] {
    writer->image_width = static_cast<JDIMENSION>(shown.width);
    writer->image_height = static_cast<JDIMENSION>(shown.height);
    writer->input_components = shown.channels;
    writer->in_color_space = shown.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(writer.get());
    jpeg_set_quality(writer.get(), quality, TRUE);
    writer->optimize_coding = TRUE;
    if (quality > kFullColourAbove) writer->comp_info[0].h_samp_factor = writer->comp_info[0].v_samp_factor = 1;
    jpeg_start_compress(writer.get(), TRUE);
    for (const auto& marker : markers) {
      jpeg_write_marker(writer.get(), JPEG_APP0 + 1, marker.data(), static_cast<unsigned>(marker.size()));
    }
    for (int y = 0; y < shown.height; ++y) {
      auto* row = const_cast<JSAMPROW>(shown.row(y));
      jpeg_write_scanlines(writer.get(), &row, 1);
    }
    jpeg_finish_compress(writer.get());
  });
  return {writer.bytes().begin(), writer.bytes().end()};
}

}  // namespace flux2
