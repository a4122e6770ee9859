#include "pipeline/enlarge.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "image/resize.h"
#include "ops/arithmetic.h"
#include "ops/view.h"
#include "pipeline/decoded_picture.h"

namespace flux2 {

namespace {

// Part of an axis: what a tile contributes, and what it reads.
struct Span {
  int begin, end, from, to;
};

// Parts of about the same length, none longer than `tile`. What a tile reads begins on the grid of folded pixels.
std::vector<Span> spans(int length, int tile, int overlap, int fold) {
  const int count = (length + tile - 1) / tile;
  std::vector<Span> list;
  for (int i = 0; i < count; ++i) {
    const auto at = [&](int part) { return static_cast<int>(int64_t{length} * part / count); };
    Span s{at(i), at(i + 1), 0, 0};
    s.from = std::max(s.begin - overlap, 0) / fold * fold;
    s.to = std::min(s.end + overlap, length);
    list.push_back(s);
  }
  return list;
}

// What a tile reads as values in [0, 1], [1, h, w, 3]; pixels at the right and lower edge are repeated until the sides can be
// folded.
Tensor values_of(const Image& rgb, const Span& down, const Span& across, int fold, Stream& stream) {
  const auto rounded = [&](int n) { return (n + fold - 1) / fold * fold; };
  const int height = rounded(down.to - down.from), width = rounded(across.to - across.from);
  std::vector<float> values;
  values.reserve(static_cast<size_t>(height) * static_cast<size_t>(width) * 3);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const uint8_t* pixel = rgb.at(std::min(across.from + x, rgb.width - 1), std::min(down.from + y, rgb.height - 1));
      for (int c = 0; c < 3; ++c) values.push_back(static_cast<float>(pixel[c]) / 255.0f);
    }
  return Tensor::from<float>(stream, DType::F32, {1, height, width, 3}, values);
}

void copy_tile(const Image& tile, const Span& down, const Span& across, int scale, Image& to) {
  const int left = scale * (across.begin - across.from), top = scale * (down.begin - down.from);
  const auto bytes = static_cast<size_t>(scale * (across.end - across.begin)) * 3;
  for (int y = 0; y < scale * (down.end - down.begin); ++y)
    std::copy_n(tile.at(left, top + y), bytes, to.at(scale * across.begin, scale * down.begin + y));
}

Image enlarge_rgb(const Upscaler& network, Stream& stream, const Image& rgb, const EnlargeOptions& options) {
  const int scale = network.config.scale, fold = network.config.fold();
  // Features are as large as the pixels that are folded into them.
  const auto down = spans(rgb.height, options.tile, fold * options.overlap, fold);
  const auto across = spans(rgb.width, options.tile, fold * options.overlap, fold);
  const int tiles = static_cast<int>(down.size() * across.size());
  Image large(scale * rgb.width, scale * rgb.height, 3);
  int tile = 0;
  for (const Span& rows : down)
    for (const Span& columns : across) {
      const auto before_block = [&](int done, int all) {
        if (options.cancelled && options.cancelled()) throw Error(ErrorCode::Cancelled, "stopped");
        if (options.report) options.report(tile * all + done, tiles * all);
      };
      const Tensor picture = network(values_of(rgb, rows, columns, fold, stream), before_block);
      // Decoded pictures lie in [−1, 1]. On a GPU they become bytes there.
      const DecodedPicture decoded(affine(picture, 2.0, -1.0));
      if (decoded.has_nan())
        throw Error(ErrorCode::BadFile, "the enlarged image contains values that are not numbers",
                    Hint("the upscaler's file is damaged, or {0} is needed", {set_option("profile", "exact")}));
      copy_tile(decoded.rgb8(Rounding::Nearest), rows, columns, scale, large);
      ++tile;
    }
  const int all = tiles * (network.config.blocks + 1);
  if (options.report) options.report(all, all);
  return large;
}

Image with_alpha(const Image& rgb, const Image& original) {
  Image alpha(original.width, original.height, 1);
  for (size_t i = 0; i < alpha.pixels.size(); ++i) alpha.pixels[i] = original.pixels[4 * i + 3];
  alpha = resize(alpha, rgb.width, rgb.height);
  Image result(rgb.width, rgb.height, 4);
  for (size_t i = 0; i < alpha.pixels.size(); ++i) {
    std::copy_n(&rgb.pixels[3 * i], 3, &result.pixels[4 * i]);
    result.pixels[4 * i + 3] = alpha.pixels[i];
  }
  return result;
}

}  // namespace

Tensor enlarged_values(const Upscaler& network, Stream& stream, const Image& image) {
  const Image rgb = to_rgb(image, AlphaRule::Drop);
  const Span down{0, rgb.height, 0, rgb.height}, across{0, rgb.width, 0, rgb.width};
  const Tensor picture = network(values_of(rgb, down, across, network.config.fold(), stream));
  const int64_t height = int64_t{network.config.scale} * rgb.height, width = int64_t{network.config.scale} * rgb.width;
  const Tensor planes = permute(picture, {0, 3, 1, 2});
  const std::vector<float> values = narrow(narrow(planes, 2, 0, height), 3, 0, width).contiguous().to_floats();
  return Tensor::host_copy(values.data(), DType::F32, {3, height, width});
}

Image enlarge(const Upscaler& network, Stream& stream, const Image& image, const EnlargeOptions& options) {
  check(image.width > 0 && image.height > 0, "there is no image to enlarge");
  check(options.tile >= kSmallestUpscaleTile && options.tile <= kLargestUpscaleTile, "tiles of {} pixels: {} to {} are possible",
        options.tile, kSmallestUpscaleTile, kLargestUpscaleTile);
  check(options.overlap >= 0 && options.overlap <= options.tile, "an overlap of {} pixels: 0 to {} are possible", options.overlap,
        options.tile);
  check_image_size(int64_t{image.width} * network.config.scale, int64_t{image.height} * network.config.scale);
  const Image rgb = to_rgb(image, AlphaRule::Drop);
  for (EnlargeOptions now = options;; now.tile = std::max(now.tile / 2, kSmallestUpscaleTile)) {
    try {
      const Image large = enlarge_rgb(network, stream, rgb, now);
      return image.channels == 4 ? with_alpha(large, image) : large;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::OutOfMemory || now.tile == kSmallestUpscaleTile) throw;
    }
  }
}

}  // namespace flux2
