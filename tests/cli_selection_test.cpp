// Selecting part of an image, variations and seamless images: each is checked for what it promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "image/mask.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class CliSelection : public Cli {
 protected:
  Image picture(const std::string& name) const { return read_image(folder_ / name); }
  Json settings_of(const std::string& name) const { return parse_json(flux2({"inspect", "--json", name}).out)["settings"]; }

  // A grey image of 128x128 with a red disc in the middle.
  void draw_disc(const std::string& name) const {
    Image image(128, 128, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{120});
    for (int y = 0; y < 128; ++y)
      for (int x = 0; x < 128; ++x)
        if ((x - 64) * (x - 64) + (y - 64) * (y - 64) < 30 * 30)
          image.at(x, y)[0] = 230, image.at(x, y)[1] = image.at(x, y)[2] = 20;
    save_image(folder_ / name, encode_png(image));
  }
};

TEST_F(CliSelection, MaskWritesWhatIsSelected) {
  draw_disc("disc.png");
  const Finished made = flux2({"mask", "disc.png", "--mask-wand", "64,64", "-o", "mask.png", "--overlay", "over.png"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.out, "mask.png\nover.png\n");
  EXPECT_THAT(made.err, HasSubstr("% of the image, inside the box X,Y,W,H = 35,35,59,59"));
  EXPECT_EQ(bounds(mask_of_picture(picture("mask.png"))), (Box{35, 35, 59, 59}));
  EXPECT_GT(picture("over.png").at(64, 64)[0], 235);
  EXPECT_EQ(picture("over.png").at(5, 5)[0], 120);

  const Finished piped = flux2({"mask", "-i", "-", "--mask-wand", "64,64", "-o", "piped.png"}, bytes("disc.png"));
  EXPECT_EQ(piped.status, 0) << piped.err;
  EXPECT_EQ(bytes("piped.png"), bytes("mask.png"));
  const Finished json = flux2({"mask", "disc.png", "--mask-color", "#787878", "--mask-invert", "-o", "same.png", "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  EXPECT_EQ(parse_json(json.out)["box"], Json({35, 35, 59, 59}));
  EXPECT_EQ(parse_json(json.out)["path"], "same.png");
  EXPECT_TRUE(parse_json(json.out)["overlay"].is_null());
  EXPECT_EQ(bytes("same.png"), bytes("mask.png"));

  const auto refusal = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "mask");
    const Finished refused = flux2(words);
    EXPECT_EQ(refused.status, 2) << refused.err;
    return refused.err;
  };
  EXPECT_THAT(refusal({"disc.png", "-o", "m.png"}), HasSubstr("which part of the image"));
  EXPECT_THAT(refusal({"disc.png", "--mask-wand", "200,5", "-o", "m.png"}), HasSubstr("--mask-wand: the point 200,5 is outside"));
  EXPECT_THAT(refusal({"disc.png", "--mask-polygon", "1,1 2,2", "-o", "m.png"}), HasSubstr("at least three"));
  EXPECT_THAT(refusal({"disc.png", "--mask-box", "0,0,9,9"}), HasSubstr("needs -o FILE"));
  EXPECT_THAT(refusal({"disc.png", "--mask-from-diff", "disc.png", "-o", "m.png"}), HasSubstr("do not differ"));
  EXPECT_FALSE(exists("m.png"));
}

TEST_F(CliSelection, InpaintingKeepsEveryPixelThatIsNotSelected) {
  draw_disc("disc.png");
  const Image before = picture("disc.png");
  const std::vector<std::vector<std::string>> selections = {
      {"--mask-wand", "64,64"},
      {"--mask-ellipse", "35,35,59,59"},
      {"--mask-polygon", "64,30 98,64 64,98 30,64"},
      {"--mask-color", "#e61414:4"},
  };
  for (const auto& selection : selections) {
    std::vector<std::string> words = {"inpaint", "-i", "disc.png", "a blue circle", "-s", "2", "-S", "1", "-o", "made.png"};
    words.insert(words.end(), selection.begin(), selection.end());
    const Finished made = flux2(words);
    ASSERT_EQ(made.status, 0) << made.err;
    std::vector<std::string> mask = {"mask", "disc.png", "--grow", "8", "--feather", "8", "-o", "mask.png"};
    mask.insert(mask.end(), selection.begin(), selection.end());
    ASSERT_EQ(flux2(mask).status, 0);
    const Image after = picture("made.png"), area = mask_of_picture(picture("mask.png"));
    int64_t changed = 0;
    for (int y = 0; y < 128; ++y)
      for (int x = 0; x < 128; ++x) {
        const bool same = std::equal(before.at(x, y), before.at(x, y) + 3, after.at(x, y));
        if (*area.at(x, y) == 0) {
          ASSERT_TRUE(same) << selection[0] << " at " << x << "," << y;
        }
        changed += !same;
      }
    EXPECT_GT(changed, 1000) << selection[0];
    // The settings bring the selection back.
    const Finished again = flux2({"inpaint", "--from", "made.png", "-i", "disc.png", "-o", "again.png"});
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(picture("again.png"), after) << selection[0];
  }
}

TEST_F(CliSelection, AVariationLiesBetweenTwoSeeds) {
  const auto make = [&](std::vector<std::string> words, const std::string& name) {
    words.insert(words.begin(), {"a red circle on a blue background", "--size", "64"});
    words.insert(words.end(), {"-o", name});
    EXPECT_EQ(generate(words).status, 0);
    return picture(name);
  };
  const Image first = make({"-S", "1"}, "first.png"), second = make({"-S", "2"}, "second.png");
  EXPECT_EQ(make({"-S", "1", "--variation", "2:0"}, "none.png"), first);
  EXPECT_EQ(make({"-S", "1", "--variation", "2:1"}, "all.png"), second);
  const Image little = make({"-S", "1", "--variation", "2:0.1"}, "little.png");
  const auto distance = [](const Image& a, const Image& b) {
    double sum = 0;
    for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(int{a.pixels[i]} - int{b.pixels[i]});
    return sum;
  };
  EXPECT_GT(distance(little, first), 0);
  EXPECT_LT(distance(little, first), distance(second, first));

  // The images of a batch are variations of one image, each with its own settings.
  ASSERT_EQ(generate({"a red circle on a blue background", "--size", "64", "-S", "1", "--variation", "2:0.1", "-b", "2", "-o",
                      "b%d.png"})
                .status,
            0);
  EXPECT_EQ(picture("b1.png"), little);
  EXPECT_EQ(settings_of("b2.png")["seed"], 1);
  EXPECT_EQ(settings_of("b2.png")["variation"], "3:0.1");
  EXPECT_EQ(picture("b2.png"), make({"-S", "1", "--variation", "3:0.1"}, "third.png"));
  ASSERT_EQ(flux2({"generate", "--from", "b2.png", "-o", "from.png"}).status, 0);
  EXPECT_EQ(picture("from.png"), picture("b2.png"));
  EXPECT_THAT(generate({"x", "--variation", "2"}).err, HasSubstr("SEED:STRENGTH"));
}

// How much neighbouring columns differ inside an image, and the last column from the first.
struct Seam {
  double inside = 0, edge = 0;
};
Seam seam_of(const Image& image) {
  const auto differ = [&](int a, int b) {
    double sum = 0;
    for (int y = 0; y < image.height; ++y)
      for (int c = 0; c < 3; ++c) sum += std::abs(int{image.at(a, y)[c]} - int{image.at(b, y)[c]});
    return sum / image.height / 3;
  };
  Seam seam;
  for (int x = 0; x + 1 < image.width; ++x) seam.inside = std::max(seam.inside, differ(x, x + 1));
  seam.edge = differ(image.width - 1, 0);
  return seam;
}

TEST_F(CliSelection, ASeamlessImageHasNoEdge) {
  double with = 0, without = 0;
  for (const std::string seed : {"1", "2", "3"}) {
    for (const bool seamless : {false, true}) {
      std::vector<std::string> words = {"generate", "a yellow star on a green background with white dots", "-S", seed, "-o",
                                        "tile.png"};
      if (seamless) words.insert(words.end(), {"--tile", "x"});
      const Finished made = flux2(words);
      ASSERT_EQ(made.status, 0) << made.err;
      const Seam seam = seam_of(picture("tile.png"));
      (seamless ? with : without) += seam.edge;
      if (seamless) {
        EXPECT_LT(seam.edge, seam.inside) << "seed " << seed << ": the edge looks like any other place";
      }
    }
  }
  EXPECT_LT(with, without / 2) << "levels at the edge of three images";
  EXPECT_EQ(settings_of("tile.png")["tile"], "x");
}

}  // namespace
}  // namespace flux2::test
