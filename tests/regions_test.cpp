// Prompts of regions on the bundled model: each colour appears in its own part of the image.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "engine/engine.h"
#include "image/mask.h"
#include "image/pixels.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

using Rgb = std::array<double, 3>;
constexpr Rgb kRed{226, 42, 40}, kBlue{42, 92, 224};

class Regions : public testing::Test {
 protected:
  static ModelFiles files() {
    ModelQuery query;
    query.bundled = test::pico_folder();
    query.environment = [](const char*) -> const char* { return nullptr; };
    return locate_model(query, {});
  }

  static Request request_for(const ModelFiles& files) {
    Request request;
    request.prompt = "a white background";
    request.width = request.height = 128;
    request.steps = files.defaults.steps;
    request.cfg = files.defaults.guidance;
    request.seed = 5;
    return request;
  }

  static Region region(const std::string& prompt, const Box& box) {
    Image mask(128, 128, 1);
    add_box(mask, box);
    return {.prompt = prompt, .mask = std::make_shared<const Image>(std::move(mask))};
  }

  static std::vector<Image> images_of(ModelSession& model, const Request& request) {
    std::vector<Image> images;
    text_to_image(model, request, {}, [&](const Picture& p) { images.push_back(p.decoded.rgb8(Rounding::Nearest)); });
    return images;
  }

  // The share of the pixels in columns first … last − 1 that are close to a colour.
  static double share(const Image& image, const Rgb& colour, int first, int last) {
    int close = 0;
    for (int y = 0; y < image.height; ++y)
      for (int x = first; x < last; ++x) {
        double square = 0;
        for (size_t c = 0; c < 3; ++c) square += std::pow(image.at(x, y)[c] - colour[c], 2);
        close += std::sqrt(square) < 90;
      }
    return static_cast<double>(close) / ((last - first) * image.height);
  }
};

TEST_F(Regions, ColoursAppearInTheirParts) {
  const Engine engine({.device = "cpu", .profile = Profile::Fast});
  const ModelFiles model_files = files();
  const auto model = engine.open(model_files, {});
  Request request = request_for(model_files);
  request.regions = {region("a large red circle in the center on a white background", {0, 0, 64, 128}),
                     region("a large blue square in the center on a white background", {64, 0, 64, 128})};
  request.steps = 12;
  const Image image = images_of(*model, request).at(0);
  const double red_inside = share(image, kRed, 0, 64), red_outside = share(image, kRed, 64, 128);
  const double blue_inside = share(image, kBlue, 64, 128), blue_outside = share(image, kBlue, 0, 64);
  fmt::print("red: {:.3f} of its half, {:.3f} of the other; blue: {:.3f} and {:.3f}\n", red_inside, red_outside, blue_inside,
             blue_outside);
  EXPECT_GE(red_inside, 0.05);
  EXPECT_GE(blue_inside, 0.05);
  EXPECT_GE(red_inside, 5 * red_outside);
  EXPECT_GE(blue_inside, 5 * blue_outside);
}

// An image of a batch is that of its seed alone.
TEST_F(Regions, BatchesGiveTheImagesOfTheirSeeds) {
  const Engine engine({.device = "cpu", .profile = Profile::Exact});
  const ModelFiles model_files = files();
  const auto model = engine.open(model_files, {});
  Request request = request_for(model_files);
  request.width = request.height = 64;
  request.steps = 2;
  request.regions = {region("a red circle", {0, 0, 64, 128}), region("a blue square", {32, 64, 64, 64})};
  request.batch = 2;
  const auto both = images_of(*model, request);
  ASSERT_EQ(both.size(), 2u);
  request.batch = 1;
  request.seed += 1;
  EXPECT_EQ(images_of(*model, request)[0], both[1]);
  const auto without = [&] {
    Request plain = request;
    plain.regions.clear();
    return images_of(*model, plain)[0];
  }();
  EXPECT_NE(without, both[1]);
}

}  // namespace
}  // namespace flux2
