#include "train/data/buckets.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "image/resize.h"
#include "image/shrink_by_area.h"

namespace flux2 {
namespace {

// The table of bucket sizes and choices that musubi-tuner's own code gives.
struct BucketRow {
  PixelSize resolution;
  size_t count;
  std::vector<PixelSize> first;
  PixelSize last;
  PixelSize hd, portrait, photo, small, small_kept, square_kept, wide;
};
const std::vector<BucketRow> kTable = {
    {{1024, 1024},
     65,
     {{512, 2048}, {528, 1984}, {544, 1920}},
     {2048, 512},
     {1360, 768},
     {768, 1360},
     {1248, 832},
     {1184, 880},
     {800, 592},
     {512, 512},
     {2048, 512}},
    {{768, 768},
     49,
     {{384, 1536}, {400, 1472}},
     {1536, 384},
     {1024, 576},
     {576, 1024},
     {944, 624},
     {896, 656},
     {800, 592},
     {512, 512},
     {1536, 384}},
    {{512, 512},
     33,
     {{256, 1024}, {272, 960}},
     {1024, 256},
     {672, 384},
     {384, 672},
     {624, 416},
     {592, 432},
     {592, 432},
     {512, 512},
     {1024, 256}},
    {{960, 544},
     47,
     {{352, 1472}, {368, 1408}},
     {1472, 352},
     {960, 544},
     {544, 960},
     {880, 592},
     {832, 624},
     {800, 592},
     {512, 512},
     {1408, 368}},
};

TEST(Buckets, SizesAndChoicesAreThoseOfTheTable) {
  for (const BucketRow& row : kTable) {
    const Buckets buckets(row.resolution, {}), kept(row.resolution, {.no_upscale = true});
    EXPECT_EQ(buckets.sizes().size(), row.count);
    for (size_t i = 0; i < row.first.size(); ++i) EXPECT_EQ(buckets.sizes()[i], row.first[i]);
    EXPECT_EQ(buckets.sizes().back(), row.last);
    EXPECT_EQ(buckets.of({1920, 1080}), row.hd);
    EXPECT_EQ(buckets.of({1080, 1920}), row.portrait);
    EXPECT_EQ(buckets.of({3000, 2000}), row.photo);
    EXPECT_EQ(buckets.of({800, 600}), row.small);
    EXPECT_EQ(kept.of({800, 600}), row.small_kept);
    EXPECT_EQ(kept.of({512, 512}), row.square_kept);
    EXPECT_EQ(buckets.of({4000, 1000}), row.wide);
  }
}

TEST(Buckets, FreeSizesAreThoseOfTheTable) {
  const PixelSize small{1024, 1024}, large{2024, 2024};
  EXPECT_EQ(free_bucket({1920, 1080}, small), (PixelSize{1360, 768}));
  EXPECT_EQ(free_bucket({1920, 1080}, large), (PixelSize{2688, 1520}));
  EXPECT_EQ(free_bucket({3000, 2000}, small), (PixelSize{1248, 832}));
  EXPECT_EQ(free_bucket({3000, 2000}, large), (PixelSize{2464, 1648}));
  EXPECT_EQ(free_bucket({4032, 3024}, small), (PixelSize{1184, 880}));
  EXPECT_EQ(free_bucket({4032, 3024}, large), (PixelSize{2336, 1744}));
  EXPECT_EQ(free_bucket({512, 512}, small), (PixelSize{1024, 1024}));
  EXPECT_EQ(free_bucket({512, 512}, large), (PixelSize{2016, 2032}));
}

TEST(Buckets, WithoutBucketsThereIsOneSize) {
  const Buckets one({960, 544}, {.enabled = false, .no_upscale = true});
  EXPECT_EQ(one.sizes(), (std::vector<PixelSize>{{960, 544}}));
  EXPECT_EQ(one.of({64, 64}), (PixelSize{960, 544}));
}

TEST(Buckets, RefusesImpossibleResolutions) {
  const auto message = [](PixelSize resolution, Buckets::Options options) -> std::string {
    try {
      const Buckets buckets(resolution, options);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message({500, 512}, {.enabled = false}),
            "the resolution 500×512 must have sides that are multiples of 16, for example 496×512; or set enable_bucket = true");
  EXPECT_EQ(message({500, 512}, {}), "");
  EXPECT_NE(message({16, 512}, {}).find("too small"), std::string::npos);
  EXPECT_NE(message({8192, 8192}, {}).find("too large"), std::string::npos);
  EXPECT_NE(message({int64_t{1} << 40, int64_t{1} << 40}, {}).find("too large"), std::string::npos);
  EXPECT_THROW(free_bucket({100000, 1}, {64, 64}), Error);
}

Image ramp(int width, int height, int channels) {
  Image image(width, height, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>((i * 37 + i / 7) % 251);
  return image;
}

TEST(FitToBucket, ShrinksByAreaAndCutsTheMiddle) {
  // 100×60 to cover 48×48: scale 0.8, 80×48.
  const Image image = ramp(100, 60, 3), fitted = fit_to_bucket(image, {48, 48});
  EXPECT_EQ(fitted, crop(shrink_by_area(image, 80, 48), 16, 0, 48, 48));
}

TEST(FitToBucket, EnlargesWithLanczos) {
  const Image image = ramp(20, 30, 3), fitted = fit_to_bucket(image, {48, 48});
  EXPECT_EQ(fitted, crop(resize(image, 48, 72), 0, 12, 48, 48));
}

TEST(FitToBucket, DropsTransparency) {
  const Image image = ramp(48, 48, 4), fitted = fit_to_bucket(image, {48, 48});
  EXPECT_EQ(fitted, to_rgb(image, AlphaRule::Drop));
  EXPECT_EQ(fit_to_bucket(image, {32, 32}), shrink_by_area(to_rgb(image, AlphaRule::Drop), 32, 32));
}

TEST(FitToBucket, GreyBecomesRgb) { EXPECT_EQ(fit_to_bucket(ramp(64, 32, 1), {32, 16}).channels, 3); }

}  // namespace
}  // namespace flux2
