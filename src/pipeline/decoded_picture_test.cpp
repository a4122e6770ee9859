#include "pipeline/decoded_picture.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_device.h"

namespace flux2 {
namespace {

// Two rows of one pixel: (0, 1, 2) and (−1, −0.5, 0.5), channels last as the autoencoder leaves them.
const std::vector<float> kValues = {0, 1, 2, -1, -0.5f, 0.5f};

TEST(DecodedPicture, TurnsChannelsIntoPlanes) {
  const auto device = open_cpu({.threads = 1});
  const auto stream = device->open_stream();
  const Tensor memory = Tensor::from<float>(*stream, DType::F32, {1, 2, 1, 3}, kValues);
  const DecodedPicture picture(memory);
  memory.fill(7.0);
  EXPECT_EQ(picture.width(), 1);
  EXPECT_EQ(picture.height(), 2);
  EXPECT_EQ(picture.planes().values, (std::vector<float>{0, -1, 1, -0.5f, 2, 0.5f}));
  EXPECT_EQ(picture.rgb8(Rounding::Trunc).pixels, (std::vector<uint8_t>{127, 255, 255, 0, 63, 191}));
  EXPECT_EQ(picture.rgb8(Rounding::Nearest).pixels, (std::vector<uint8_t>{128, 255, 255, 0, 64, 191}));
  EXPECT_FALSE(picture.has_nan());
  EXPECT_FALSE(picture.is_black());
}

TEST(DecodedPicture, DetectsBrokenImages) {
  EXPECT_TRUE(DecodedPicture(Planes{1, 1, {0, NAN, 0}}).has_nan());
  EXPECT_FALSE(DecodedPicture(Planes{1, 1, {0, INFINITY, 0}}).has_nan());
  EXPECT_TRUE(DecodedPicture(Planes{1, 1, {-1, -2, -0.999f}}).is_black());
}

}  // namespace
}  // namespace flux2
