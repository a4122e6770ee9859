#include "image/resize.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "base/error.h"

namespace flux2 {

namespace {

// Weights are integers of 22 fractional bits: 8 bits of sample and 2 of headroom for the filter's lobes fill 32.
constexpr int kWeightBits = 22;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

double bilinear(double x) {
  x = std::abs(x);
  return x < 1 ? 1 - x : 0;
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) { return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

struct Kernel {
  double support;
  double (*weight)(double);
};

Kernel kernel_of(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::Bilinear: return {1, bilinear};
    case ResizeFilter::Bicubic: return {2, bicubic};
    case ResizeFilter::Lanczos: return {3, lanczos};
  }
  return {3, lanczos};
}

// The outputs of an axis that are computed.
struct Span {
  int64_t begin = 0;
  int count = 0;
};

// For output i of the span: the inputs [first[i], first[i] + count[i]) and their weights at i·stride.
struct AxisWeights {
  std::vector<int> first, count;
  std::vector<int32_t> weights;
  size_t stride;

  AxisWeights(int in, int out, const Kernel& kernel) : AxisWeights(in, out, {.count = out}, kernel) {}

  AxisWeights(int in, int64_t out, const Span& span, const Kernel& kernel) {
    const double scale = static_cast<double>(in) / static_cast<double>(out), filter_scale = std::max(scale, 1.0);
    const double support = kernel.support * filter_scale, inverse = 1.0 / filter_scale;
    stride = static_cast<size_t>(std::ceil(support)) * 2 + 1;
    weights.resize(stride * static_cast<size_t>(span.count));
    std::vector<double> exact(stride);
    for (int i = 0; i < span.count; ++i) {
      const double centre = (static_cast<double>(span.begin + i) + 0.5) * scale;
      const int low = std::max(static_cast<int>(centre - support + 0.5), 0);
      const int high = std::min(static_cast<int>(centre + support + 0.5), in);
      const int n = high - low;
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += exact[k] = kernel.weight((k + low - centre + 0.5) * inverse);
      int32_t* row = weights.data() + static_cast<size_t>(i) * stride;
      for (int k = 0; k < n; ++k) {
        const double w = sum != 0 ? exact[k] / sum : exact[k];
        row[k] = static_cast<int32_t>(w * (1 << kWeightBits) + (w < 0 ? -0.5 : 0.5));
      }
      first.push_back(low);
      count.push_back(n);
    }
  }

  const int32_t* of(int i) const { return weights.data() + static_cast<size_t>(i) * stride; }
};

uint8_t to_sample(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

template <int C>
void resample_row(const uint8_t* in, uint8_t* out, int width, const AxisWeights& axis) {
  for (int x = 0; x < width; ++x, out += C) {
    const uint8_t* from = in + static_cast<size_t>(axis.first[x]) * C;
    const int32_t* weights = axis.of(x);
    int32_t sum[C];
    std::fill_n(sum, C, kHalf);
    for (int k = 0; k < axis.count[x]; ++k, from += C) {
      for (int c = 0; c < C; ++c) sum[c] += from[c] * weights[k];
    }
    for (int c = 0; c < C; ++c) out[c] = to_sample(sum[c]);
  }
}

// Fills a row of the image as it is to be resampled.
using PrepareRow = std::function<void(int y, uint8_t* out)>;

// Rows are prepared one at a time, so that no second image of the original size is needed. A width of its own is resampled away.
Image resample_horizontally(const Image& in, int channels, int width, const Kernel& kernel, const PrepareRow& prepare) {
  const bool same = width == in.width;
  const AxisWeights axis(in.width, same ? 1 : width, kernel);
  Image out(width, in.height, channels);
  std::vector<uint8_t> prepared(static_cast<size_t>(in.width) * static_cast<size_t>(channels));
  const auto row = channels == 1 ? resample_row<1> : channels == 3 ? resample_row<3> : resample_row<4>;
  for (int y = 0; y < in.height; ++y) {
    if (same) {
      prepare(y, out.row(y));
      continue;
    }
    prepare(y, prepared.data());
    row(prepared.data(), out.row(y), width, axis);
  }
  return out;
}

// A whole row of sums at a time, so that the inner loop runs along memory and vectorises.
Image resample_vertically(const Image& in, const AxisWeights& axis, int top = 0) {  // in begins with row `top` of the original
  const int height = static_cast<int>(axis.first.size());
  Image out(in.width, height, in.channels);
  std::vector<int32_t> sums(in.row_bytes());
  for (int y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int k = 0; k < axis.count[y]; ++k) {
      const uint8_t* from = in.row(axis.first[y] - top + k);
      const int32_t weight = axis.of(y)[k];
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += from[i] * weight;
    }
    std::transform(sums.begin(), sums.end(), out.row(y), to_sample);
  }
  return out;
}

void premultiply(const uint8_t* from, uint8_t* to, int width) {
  for (int x = 0; x < width; ++x, from += 4, to += 4) {
    for (int c = 0; c < 3; ++c) to[c] = mul_div_255(from[c], from[3]);
    to[3] = from[3];
  }
}

void unpremultiply(Image& image) {
  for (size_t i = 0; i < image.pixels.size(); i += 4) {
    uint8_t* p = &image.pixels[i];
    if (p[3] == 0 || p[3] == 255) continue;
    for (int c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>(std::min(255 * p[c] / p[3], 255));
  }
}

}  // namespace

Image resize(const Image& image, int width, int height, ResizeFilter filter) {
  check_image_size(width, height, {.pixels = kMaxImagePixels});
  if (width == image.width && height == image.height) return image;
  const Kernel kernel = kernel_of(filter);
  const bool alpha = image.channels == 4;
  // An opaque image of the right width needs no copy for the horizontal pass.
  if (width == image.width && !alpha) return resample_vertically(image, {image.height, height, kernel});
  Image result = resample_horizontally(image, image.channels, width, kernel, [&](int y, uint8_t* out) {
    if (alpha) premultiply(image.row(y), out, image.width);
    else std::copy_n(image.row(y), image.row_bytes(), out);
  });
  if (height != result.height) result = resample_vertically(result, {result.height, height, kernel});
  if (alpha) unpremultiply(result);
  return result;
}

Image resize_to_rgb(const Image& image, AlphaRule rule, int width, int height, ResizeFilter filter) {
  check_image_size(width, height, {.pixels = kMaxImagePixels});
  const Kernel kernel = kernel_of(filter);
  Image result = resample_horizontally(image, 3, width, kernel, [&](int y, uint8_t* out) { rgb_row(image, y, rule, out); });
  return height == result.height ? result : resample_vertically(result, {result.height, height, kernel});
}

Image resize_middle_to_rgb(const Image& image, AlphaRule rule, const MiddleOf& whole, ResizeFilter filter) {
  require(image.width > 0 && image.height > 0 && whole.width > 0 && whole.height > 0 && whole.side > 0,
          "the middle {} of {}×{} from an image of {}×{}", whole.side, whole.width, whole.height, image.width, image.height);
  const Kernel kernel = kernel_of(filter);
  const auto middle = [&](int64_t length) {
    const int count = static_cast<int>(std::min<int64_t>(length, whole.side));
    return Span{(length - count) / 2, count};
  };
  const Span columns = middle(whole.width), rows = middle(whole.height);
  const AxisWeights across(image.width, whole.width, columns, kernel), down(image.height, whole.height, rows, kernel);
  const int top = down.first.front(), bottom = down.first.back() + down.count.back();  // rows that the vertical pass reads
  Image narrow(columns.count, bottom - top, 3);
  std::vector<uint8_t> rgb(static_cast<size_t>(image.width) * 3);
  for (int y = top; y < bottom; ++y) {
    rgb_row(image, y, rule, rgb.data());
    resample_row<3>(rgb.data(), narrow.row(y - top), columns.count, across);
  }
  return resample_vertically(narrow, down, top);
}

Image cover(const Image& image, int width, int height) {
  const double scale = std::max(static_cast<double>(width) / image.width, static_cast<double>(height) / image.height);
  const auto side = [&](int length, int least) { return std::max(least, static_cast<int>(std::lround(length * scale))); };
  // An image that is only slightly too large for a multiple of 16 is cropped, which keeps its pixels unchanged.
  if (image.width >= width && image.height >= height && (image.width - width < 16 && image.height - height < 16))
    return centre_crop(image, width, height);
  return centre_crop(resize(image, side(image.width, width), side(image.height, height)), width, height);
}

}  // namespace flux2
