// Training teaches the bundled model a word that it does not know: a colour, from eight drawings.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using Rgb = std::array<int, 3>;
constexpr Rgb kMagenta = {230, 0, 180};

double distance(const Rgb& a, const Rgb& b) {
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

class Learn : public Cli {
 protected:
  struct Drawing {
    bool large, round;
    const char* background;
    Rgb colour;
  };

  void draw(const std::string& name, const Drawing& d) const {
    Image image(128, 128, 3);
    const double radius = d.large ? 45 : 25;
    for (int y = 0; y < 128; ++y)
      for (int x = 0; x < 128; ++x) {
        const double dx = std::abs(x - 63.5), dy = std::abs(y - 63.5);
        const bool inside = d.round ? dx * dx + dy * dy < radius * radius : std::max(dx, dy) < radius;
        for (size_t c = 0; c < 3; ++c) image.at(x, y)[c] = static_cast<uint8_t>((inside ? kMagenta : d.colour)[c]);
      }
    save_image(folder_ / "images" / (name + ".png"), encode_png(image));
    std::ofstream(folder_ / "images" / (name + ".txt"))
        << "a " << (d.large ? "large" : "small") << " zorp " << (d.round ? "circle" : "square") << " in the center on a "
        << d.background << " background";
  }

  // The mean colour of the middle of an image on a background that no drawing had.
  Rgb middle(std::vector<std::string> more) const {
    more.insert(more.begin(),
                {"generate", "a large zorp circle in the center on a red background", "--seed", "3", "-o", "x.png"});
    const Finished made = flux2(more);
    EXPECT_EQ(made.status, 0) << made.err;
    const Image image = read_image(folder_ / "x.png");
    std::array<int, 3> sum{};
    for (int y = 54; y < 74; ++y)
      for (int x = 54; x < 74; ++x)
        for (size_t c = 0; c < 3; ++c) sum[c] += image.at(x, y)[c];
    for (int& s : sum) s /= 400;
    return sum;
  }
};

TEST_F(Learn, ANewWordFromEightDrawings) {
  fs::create_directories(folder_ / "images");
  const std::vector<Drawing> drawings = {{true, true, "white", {255, 255, 255}},   {true, false, "blue", {42, 92, 224}},
                                         {false, true, "yellow", {255, 214, 42}},  {true, true, "black", {16, 16, 16}},
                                         {false, false, "white", {255, 255, 255}}, {true, true, "green", {45, 155, 66}},
                                         {true, false, "gray", {142, 142, 142}},   {false, true, "blue", {42, 92, 224}}};
  for (size_t i = 0; i < drawings.size(); ++i) draw("z" + std::to_string(i), drawings[i]);
  write("data.json", R"({"general": {"resolution": 128, "caption_extension": ".txt", "batch_size": 1},
    "datasets": [{"image_directory": "images", "cache_directory": "cache"}]})");
  const Finished trained =
      flux2({"train", "data.json", "--network_dim", "8", "--network_alpha", "8", "--learning_rate", "4e-3", "--timestep_sampling",
             "flux2_shift", "--seed", "7", "--max_train_steps", "40", "--optimizer_type", "adamw8bit", "--output_name", "zorp"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const Rgb without = middle({}), with = middle({"--lora", "training/zorp.safetensors"});
  EXPECT_GT(distance(without, kMagenta), 120) << without[0] << " " << without[1] << " " << without[2];
  EXPECT_LT(distance(with, kMagenta), 100) << with[0] << " " << with[1] << " " << with[2];
}

}  // namespace
}  // namespace flux2::test
