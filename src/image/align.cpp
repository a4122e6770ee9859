#include "image/align.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/least_squares.h"

namespace flux2 {

namespace {

constexpr int kSmallestSide = 24;             // of the coarsest level
constexpr int64_t kLargestLevel = 1'500'000;  // pixels; finer ones add time, not precision
constexpr double kLeastArea = 256;            // kept pixels at full size below which nothing is measured
constexpr int kRounds = 12;                   // at each level, at most
constexpr double kStill = 2e-3;               // pixels at the border: smaller steps end a level
constexpr double kLargestShift = 1.0 / 16, kLargestScale = 0.06;
constexpr double kBelief = 0.02;  // the weight of the identity as a prior, in observations per kept pixel

// Pictures as planes of floats, for measuring below the pixel. Coordinates are of pixel centres, (0, 0) the first.
struct FloatPlanes {
  int width = 0, height = 0;
  std::vector<std::vector<float>> planes;

  const float* row(size_t plane, int y) const {
    return planes[plane].data() + static_cast<size_t>(y) * static_cast<size_t>(width);
  }
};

std::array<float, 4> catmull_rom(float t) {
  const float t2 = t * t, t3 = t2 * t;
  return {-0.5f * t3 + t2 - 0.5f * t, 1.5f * t3 - 2.5f * t2 + 1, -1.5f * t3 + 2 * t2 + 0.5f * t, 0.5f * t3 - 0.5f * t2};
}

// Each value is the mean of a square of `factor` pixels; a rest at the right and below is left out.
FloatPlanes shrunk_planes(const Image& image, int factor) {
  FloatPlanes out{image.width / factor, image.height / factor, {}};
  const auto channels = static_cast<size_t>(image.channels);
  const float share = 1.0f / static_cast<float>(factor * factor);
  out.planes.assign(channels, std::vector<float>(static_cast<size_t>(out.width) * static_cast<size_t>(out.height)));
  for (int y = 0; y < out.height * factor; ++y) {
    const uint8_t* from = image.row(y);
    const size_t start = static_cast<size_t>(y / factor) * static_cast<size_t>(out.width);
    for (int x = 0; x < out.width * factor; ++x)
      for (size_t c = 0; c < channels; ++c)
        out.planes[c][start + static_cast<size_t>(x / factor)] += share * from[static_cast<size_t>(x) * channels + c];
  }
  return out;
}

FloatPlanes halved(const FloatPlanes& in) {
  FloatPlanes out{in.width / 2, in.height / 2, {}};
  for (size_t c = 0; c < in.planes.size(); ++c) {
    std::vector<float> plane;
    plane.reserve(static_cast<size_t>(out.width) * static_cast<size_t>(out.height));
    for (int y = 0; y < out.height; ++y) {
      const float *a = in.row(c, 2 * y), *b = in.row(c, 2 * y + 1);
      for (int x = 0; x < out.width; ++x) plane.push_back(0.25f * (a[2 * x] + a[2 * x + 1] + b[2 * x] + b[2 * x + 1]));
    }
    out.planes.push_back(std::move(plane));
  }
  return out;
}

// Bicubic (Catmull–Rom) between pixels, the outermost repeated beyond the borders: out[plane] at (x, y).
void sample_planes(const FloatPlanes& in, double x, double y, float* out) {
  const double left = std::floor(x), top = std::floor(y);
  const auto wx = catmull_rom(static_cast<float>(x - left)), wy = catmull_rom(static_cast<float>(y - top));
  std::array<int, 4> columns;
  for (int k = 0; k < 4; ++k) columns[static_cast<size_t>(k)] = std::clamp(static_cast<int>(left) - 1 + k, 0, in.width - 1);
  std::fill_n(out, in.planes.size(), 0.0f);
  for (int k = 0; k < 4; ++k) {
    const int line = std::clamp(static_cast<int>(top) - 1 + k, 0, in.height - 1);
    for (size_t c = 0; c < in.planes.size(); ++c) {
      const float* row = in.row(c, line);
      float sum = 0;
      for (size_t j = 0; j < 4; ++j) sum += wx[j] * row[columns[j]];
      out[c] += wy[static_cast<size_t>(k)] * sum;
    }
  }
}

struct Level {
  FloatPlanes picture, original, kept;
};

std::vector<Level> make_levels(const Image& picture, const Image& original, const Image& kept) {
  int factor = 1;
  while (int64_t{picture.width / factor} * (picture.height / factor) > kLargestLevel) ++factor;
  std::vector<Level> levels = {{shrunk_planes(picture, factor), shrunk_planes(original, factor), shrunk_planes(kept, factor)}};
  while (std::min(levels.back().kept.width, levels.back().kept.height) >= 2 * kSmallestSide) {
    const Level& finer = levels.back();
    levels.push_back({halved(finer.picture), halved(finer.original), halved(finer.kept)});
  }
  return levels;
}

// The aligned image, sampled at every pixel of the original.
FloatPlanes laid_over(const FloatPlanes& picture, const Alignment& a) {
  FloatPlanes out{picture.width, picture.height, {}};
  const auto count = static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height);
  out.planes.assign(picture.planes.size(), std::vector<float>(count));
  const double cx = 0.5 * (picture.width - 1), cy = 0.5 * (picture.height - 1);
  std::vector<float> samples(picture.planes.size());
  size_t at = 0;
  for (int y = 0; y < picture.height; ++y)
    for (int x = 0; x < picture.width; ++x, ++at) {
      sample_planes(picture, cx + a.scale * (x - cx) + a.dx, cy + a.scale * (y - cy) + a.dy, samples.data());
      for (size_t c = 0; c < samples.size(); ++c) out.planes[c][at] = samples[c];
    }
  return out;
}

float residual(float seen, float original, const Alignment& a, size_t c) {
  return static_cast<float>(seen - a.gain[c] * original - a.offset[c]);
}

// A typical error over the kept area: a robust stand-in for the standard deviation.
double typical_error(const FloatPlanes& seen, const Level& level, const Alignment& a) {
  std::vector<float> errors;
  const size_t stride = 1 + seen.planes[0].size() / 65536;
  for (size_t c = 0; c < 3; ++c)
    for (size_t i = 0; i < seen.planes[c].size(); i += stride)
      if (level.kept.planes[0][i] > 127)
        errors.push_back(std::abs(residual(seen.planes[c][i], level.original.planes[c][i], a, c)));
  if (errors.empty()) return 1;
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  return std::max(1.0, 1.4826 * *middle);
}

// One Gauss–Newton step: unknown are changes of dx, dy, scale and the new gains and offsets. Returns how far the border moved.
double improve(Alignment& a, const Level& level) {
  const FloatPlanes seen = laid_over(level.picture, a);
  const double error = typical_error(seen, level, a);
  const double cx = 0.5 * (seen.width - 1), cy = 0.5 * (seen.height - 1), half = std::max(cx, cy);
  LeastSquares fit(9);
  double kept_pixels = 0;
  for (int y = 1; y + 1 < seen.height; ++y) {
    const float* kept = level.kept.row(0, y);
    for (int x = 1; x + 1 < seen.width; ++x) {
      const double px = cx + a.scale * (x - cx) + a.dx, py = cy + a.scale * (y - cy) + a.dy;
      if (kept[x] <= 0 || px < 1 || py < 1 || px > seen.width - 2 || py > seen.height - 2) continue;
      kept_pixels += kept[x] / 255.0;
      for (size_t c = 0; c < 3; ++c) {
        const float* row = seen.row(c, y);
        const double original = level.original.row(c, y)[x];
        const double r = residual(row[x], static_cast<float>(original), a, c) / error;
        const double gx = 0.5 * (row[x + 1] - row[x - 1]) / a.scale;
        const double gy = 0.5 * (seen.row(c, y + 1)[x] - seen.row(c, y - 1)[x]) / a.scale;
        const int channel = static_cast<int>(c);
        const std::array<int, 5> columns = {0, 1, 2, 3 + channel, 6 + channel};
        // The scale is measured as the shift it causes at the border, the gain as the change it causes at mid-grey.
        const std::array<double, 5> values = {-gx, -gy, -(gx * (x - cx) + gy * (y - cy)) / half, original / 128, 1};
        const double target = row[x];
        fit.add(columns, values, {&target, 1}, kept[x] / 255.0 / (1 + r * r));
      }
    }
  }
  for (int k = 0; k < 3; ++k) {
    fit.expect(k, 0, kBelief * kept_pixels);
    fit.expect(3 + k, 128, kBelief * 1e-2 * kept_pixels);
  }
  const std::vector<double> x = fit.solve()[0];
  a.dx += x[0], a.dy += x[1], a.scale += x[2] / half;
  for (size_t c = 0; c < 3; ++c) a.gain[c] = x[3 + c] / 128, a.offset[c] = x[6 + c];
  return std::hypot(x[0], x[1]) + std::abs(x[2]);
}

bool plausible(const Alignment& a, int width, int height) {
  const bool still = std::abs(a.dx) <= kLargestShift * width && std::abs(a.dy) <= kLargestShift * height &&
                     std::abs(a.scale - 1) <= kLargestScale;
  return still && std::all_of(a.gain.begin(), a.gain.end(), [](double g) { return g >= 0.5 && g <= 2; });
}

}  // namespace

bool Alignment::is_identity() const {
  return dx == 0 && dy == 0 && scale == 1 && gain == std::array<double, 3>{1, 1, 1} && offset == std::array<double, 3>{};
}

Alignment measure_alignment(const Image& picture, const Image& original, const Image& kept) {
  require(picture.channels == 3 && original.channels == 3 && kept.channels == 1, "align: {}, {} and {} channels",
          picture.channels, original.channels, kept.channels);
  for (const Image* other : {&original, &kept})
    require(other->width == picture.width && other->height == picture.height, "align: {}×{} beside {}×{}", other->width,
            other->height, picture.width, picture.height);
  double area = 0;
  for (const uint8_t k : kept.pixels) area += k / 255.0;
  if (area < kLeastArea || std::min(picture.width, picture.height) < kSmallestSide) return {};

  const std::vector<Level> levels = make_levels(picture, original, kept);
  Alignment found;
  for (size_t i = levels.size(); i-- > 0;) {
    for (int round = 0; round < kRounds; ++round) {
      const double moved = improve(found, levels[i]);
      if (!plausible(found, levels[i].kept.width, levels[i].kept.height)) return {};
      if (moved < kStill) break;
    }
    const double finer = static_cast<double>(i > 0 ? levels[i - 1].kept.width : picture.width) / levels[i].kept.width;
    found.dx *= finer, found.dy *= finer;
  }
  Alignment at_finest = found;
  const double shrink = static_cast<double>(levels[0].kept.width) / picture.width;
  at_finest.dx *= shrink, at_finest.dy *= shrink;
  const double before = typical_error(levels[0].picture, levels[0], {});
  const double after = typical_error(laid_over(levels[0].picture, at_finest), levels[0], at_finest);
  return after <= before ? found : Alignment{};
}

Image aligned(const Image& picture, const Alignment& a) {
  require(picture.channels == 3, "align: an image of {} channels", picture.channels);
  if (a.is_identity()) return picture;
  const FloatPlanes planes = shrunk_planes(picture, 1);
  Image out(picture.width, picture.height, 3);
  const double cx = 0.5 * (picture.width - 1), cy = 0.5 * (picture.height - 1);
  std::array<float, 3> samples;
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x) {
      sample_planes(planes, cx + a.scale * (x - cx) + a.dx, cy + a.scale * (y - cy) + a.dy, samples.data());
      for (size_t c = 0; c < 3; ++c) {
        const double value = (samples[c] - a.offset[c]) / a.gain[c];
        out.at(x, y)[c] = static_cast<uint8_t>(std::lround(std::clamp(value, 0.0, 255.0)));
      }
    }
  return out;
}

}  // namespace flux2
