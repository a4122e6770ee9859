#include <algorithm>
#include <cctype>

#include "image/byte_view.h"
#include "image/codecs.h"

namespace flux2 {

namespace {

// The words of a PPM file: decimal numbers between white space and comments.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  uint32_t number() {
    skip_space();
    const size_t begin = at_;
    uint32_t value = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      value = value * 10 + static_cast<uint32_t>(text_[at_] - '0');
      if (value > 1'000'000) fail(ErrorCode::BadFile, "PPM: a number at byte {} is too large", begin);
    }
    if (at_ == begin) fail(ErrorCode::BadFile, "PPM: a number is missing at byte {} of {}", at_, text_.size());
    return value;
  }

  // Binary samples begin after exactly one white character.
  size_t binary_start() const { return at_ + 1; }
  size_t left() const { return text_.size() - at_; }

 private:
  void skip_space() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size() - 1);
      } else if (!std::isspace(static_cast<unsigned char>(text_[at_]))) {
        return;
      }
    }
  }

  std::string_view text_;
  size_t at_ = 2;  // behind "P6"
};

}  // namespace

Image decode_pnm(std::span<const std::byte> bytes, const ImageLimits& limits) {
  const ByteView file(bytes, std::endian::big);
  const char kind = file.text(0, 2)[1];
  Scanner scanner(file.text(0, bytes.size()));
  const uint32_t width = scanner.number(), height = scanner.number(), highest = scanner.number();
  check_image_size(width, height, limits);
  if (highest < 1 || highest > 65535) {
    fail(ErrorCode::BadFile, "PPM: the highest value {} is not within 1…65535", highest);
  }

  const bool plain = kind == '2' || kind == '3';
  const int channels = kind == '2' || kind == '5' ? 1 : 3;
  const size_t count = size_t{width} * height * static_cast<size_t>(channels), sample_bytes = highest > 255 ? 2 : 1;
  if (plain && scanner.left() / 2 < count) fail(ErrorCode::BadFile, "PPM: the file is truncated");
  const ByteView samples(file.part(plain ? 0 : scanner.binary_start(), plain ? 0 : count * sample_bytes), std::endian::big);

  Image image(static_cast<int>(width), static_cast<int>(height), channels);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t value = plain ? scanner.number() : sample_bytes == 2 ? samples.u16(2 * i) : samples.u8(i);
    if (value > highest) {
      fail(ErrorCode::BadFile, "PPM: sample {} is {}, above the highest value {}", i, value, highest);
    }
    image.pixels[i] = static_cast<uint8_t>((value * 510 + highest) / (2 * highest));
  }
  return image;
}

}  // namespace flux2
