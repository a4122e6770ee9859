#include "image/align.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "base/error.h"
#include "image/difference.h"
#include "image/resize.h"
#include "image/test_images.h"

namespace flux2 {
namespace {

constexpr int kWidth = 200, kHeight = 152;

// A scene that can be seen at any place, between pixels too: waves, a disc and an edge, never at the ends of the scale.
double scene(double x, double y, int c) {
  const double waves = 22 * std::sin(0.21 * x + 0.13 * y + c) + 18 * std::cos(0.17 * x - 0.24 * y + 2 * c) +
                       12 * std::sin(0.05 * x * (1 + 0.3 * c)) * std::cos(0.06 * y);
  const double disc = 35 / (1 + std::exp(std::hypot(x + 30, y - 20) - 28));
  const double edge = -25 / (1 + std::exp(-(x - 0.4 * y - 35)));
  return 120 + waves + disc + edge;
}

// The scene as a picture lying over the original by `a` shows it.
Image drawn(const Alignment& a, unsigned noise = 0) {
  Image image(kWidth, kHeight, 3);
  unsigned state = 12345;
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x)
      for (int c = 0; c < 3; ++c) {
        const double px = (x - 0.5 * (kWidth - 1) - a.dx) / a.scale, py = (y - 0.5 * (kHeight - 1) - a.dy) / a.scale;
        const auto channel = static_cast<size_t>(c);
        state = state * 1664525u + 1013904223u;
        const double jitter = noise == 0 ? 0 : static_cast<double>((state >> 16) % (2 * noise + 1)) - noise;
        const double value = a.gain[channel] * scene(px, py, c) + a.offset[channel] + jitter;
        image.at(x, y)[c] = static_cast<uint8_t>(std::lround(std::clamp(value, 0.0, 255.0)));
      }
  return image;
}

bool inside_hole(int x, int y, int margin = 0) {
  return x >= 120 - margin && x < 180 + margin && y >= 50 - margin && y < 104 + margin;
}

// Kept is everything but a hole right of the middle.
Image kept_mask() {
  Image kept(kWidth, kHeight, 1);
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) *kept.at(x, y) = inside_hole(x, y) ? 0 : 255;
  return kept;
}

// The hole's outermost pixels, where pasted parts meet kept ones.
Image seam() {
  Image area(kWidth, kHeight, 1);
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) *area.at(x, y) = inside_hole(x, y) && !inside_hole(x, y, -6) ? 255 : 0;
  return area;
}

void expect_measured(double found, double truth, double neutral, const char* what) {
  EXPECT_NEAR(found, truth, 0.1 * std::abs(truth - neutral) + 1e-9) << what;
}

struct Case {
  const char* name;
  Alignment truth;
  double removed;  // seam PSNR in dB that the correction must reach
};

TEST(Align, MeasuresAndCorrectsDisplacement) {
  const Case cases[] = {
      {"shift of 3 px", {.dx = 3}, 45},
      {"shift of 0.4 px", {.dx = 0.4, .dy = -0.4}, 45},
      {"shift of -2.6, 1.3 px", {.dx = -2.6, .dy = 1.3}, 45},
      {"scale 1.01", {.scale = 1.01}, 45},
      {"gain and offset", {.gain = {1.08, 0.93, 1.05}, .offset = {-6, 5, -9}}, 45},
      {"everything", {.dx = 1.7, .dy = -0.6, .scale = 0.988, .gain = {0.92, 1.06, 1.1}, .offset = {8, -7, 4}}, 43},
  };
  const Image original = drawn({}), kept = kept_mask(), ring = seam();
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Image picture = drawn(c.truth);
    const Alignment found = measure_alignment(picture, original, kept);
    if (c.truth.dx != 0) expect_measured(found.dx, c.truth.dx, 0, "dx");
    if (c.truth.dy != 0) expect_measured(found.dy, c.truth.dy, 0, "dy");
    if (c.truth.scale != 1) expect_measured(found.scale, c.truth.scale, 1, "scale");
    for (size_t k = 0; k < 3; ++k) {
      if (c.truth.gain[k] != 1) expect_measured(found.gain[k], c.truth.gain[k], 1, "gain");
      if (c.truth.offset[k] != 0) expect_measured(found.offset[k], c.truth.offset[k], 0, "offset");
    }
    const double before = difference(picture, original, &ring).psnr;
    const double after = difference(aligned(picture, found), original, &ring).psnr;
    std::cout << c.name << ": seam " << before << " dB before, " << after << " dB after\n";
    EXPECT_GT(after, c.removed);
    EXPECT_GT(after, before + 10);
  }
}

TEST(Align, IsRobustToNoiseAndNewContent) {
  const Alignment truth{.dx = 1.5, .dy = -0.8, .gain = {1.05, 0.95, 1.06}, .offset = {4, -4, 6}};
  Image picture = drawn(truth, 6);
  for (int y = 0; y < 40; ++y)
    for (int x = 150; x < kWidth; ++x) picture.at(x, y)[0] = 255, picture.at(x, y)[1] = 20, picture.at(x, y)[2] = 20;
  const Alignment found = measure_alignment(picture, drawn({}), kept_mask());
  expect_measured(found.dx, truth.dx, 0, "dx");
  expect_measured(found.dy, truth.dy, 0, "dy");
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(found.gain[k], truth.gain[k], 0.015);
}

TEST(Align, BarelyChangesAMatchingImage) {
  const Image picture = drawn({}, 3);
  const Alignment found = measure_alignment(picture, drawn({}), kept_mask());
  EXPECT_NEAR(found.dx, 0, 0.03);
  EXPECT_NEAR(found.dy, 0, 0.03);
  EXPECT_NEAR(found.scale, 1, 0.0005);
}

TEST(Align, DoesNothingWithoutStructure) {
  const Image original = drawn({}), other = drawn({.dx = 3});
  EXPECT_TRUE(measure_alignment(other, original, Image(kWidth, kHeight, 1)).is_identity());  // nothing is kept
  const Image unrelated = test_image(kWidth, kHeight, 3, 9);
  const Alignment found = measure_alignment(unrelated, original, kept_mask());
  EXPECT_LE(std::abs(found.dx), kWidth / 16.0);  // never far, whatever the pictures are
  // A flat picture has no shift, but it has a colour.
  Image grey(kWidth, kHeight, 3), darker(kWidth, kHeight, 3);
  std::fill(grey.pixels.begin(), grey.pixels.end(), uint8_t{100});
  std::fill(darker.pixels.begin(), darker.pixels.end(), uint8_t{90});
  const Image back = aligned(darker, measure_alignment(darker, grey, kept_mask()));
  EXPECT_LE(difference(back, grey).max, 1);
  EXPECT_THROW(measure_alignment(grey, test_image(10, 10, 3), kept_mask()), Error);
}

TEST(Align, LargePicturesAreMeasuredAtASmallerSize) {
  const auto enlarged = [](const Image& image) { return resize(image, 8 * kWidth, 8 * kHeight, ResizeFilter::Bicubic); };
  const Alignment found = measure_alignment(enlarged(drawn({.dx = 1.2})), enlarged(drawn({})), enlarged(kept_mask()));
  EXPECT_NEAR(found.dx, 9.6, 0.5);
}

}  // namespace
}  // namespace flux2
