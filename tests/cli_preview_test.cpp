// Previews of steps: their pixels are checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>

#include "image/difference.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class CliPreview : public Cli {
 protected:
  Image picture(const std::string& name) const { return read_image(folder_ / name); }
  Finished make(std::vector<std::string> words) const {
    words.insert(words.begin(), {"generate", "a large red circle in the center on a blue background", "-S", "3", "-s", "6"});
    return flux2(std::move(words));
  }
  fs::path remembered() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "home/cache/previews")) return entry.path();
    return {};
  }
};

// What a linear preview can show of an image: 8×8 pixels become one.
Image coarse(const Image& image) { return resize(image, image.width / 8, image.height / 8, ResizeFilter::Bilinear); }

TEST_F(CliPreview, TheLastLinearPreviewLooksLikeThePicture) {
  const Finished made = make({"-o", "x.png", "--preview-file", "p.png", "--progress", "json"});
  ASSERT_EQ(made.status, 0) << made.err;
  size_t events = 0;
  for (size_t at = made.err.find("\"event\":\"preview\""); at != made.err.npos;
       at = made.err.find("\"event\":\"preview\"", at + 1))
    ++events;
  EXPECT_EQ(events, 6u);
  const Image final = picture("x.png"), preview = picture("p.png");
  ASSERT_EQ(preview.width, final.width);
  const double psnr = difference(coarse(preview), coarse(final)).psnr;
  std::cout << "linear preview: " << psnr << " dB\n";
  EXPECT_GT(psnr, 24);

  // Previews do not change the image.
  ASSERT_EQ(make({"-o", "alone.png"}).status, 0);
  EXPECT_EQ(picture("alone.png"), final);
}

TEST_F(CliPreview, FactorsAreCachedByTheAutoencodersHash) {
  ASSERT_EQ(make({"-o", "x.png", "--preview-file", "p.png"}).status, 0);
  const fs::path file = remembered();
  ASSERT_FALSE(file.empty());
  Json colours = read_json(file);
  EXPECT_EQ(colours["factors"].size(), 32u);
  for (Json& factor : colours["factors"]) factor = {0, 0, 0};
  colours["bias"] = {-1, 0, 1};
  std::ofstream(file) << colours.dump();
  ASSERT_EQ(make({"-o", "x.png", "--preview-file", "flat.png"}).status, 0);
  const Image flat = picture("flat.png");
  for (size_t i = 0; i < flat.pixels.size(); i += 3) {
    EXPECT_EQ(flat.pixels[i], 0);
    EXPECT_EQ(flat.pixels[i + 2], 255);
  }
  // A damaged file is recreated.
  std::ofstream(file) << "{\"factors\": 3}";
  ASSERT_EQ(make({"-o", "x.png", "--preview-file", "again.png"}).status, 0);
  EXPECT_EQ(picture("again.png"), picture("p.png"));
}

TEST_F(CliPreview, DecodedPreviewsEndInThePictureItself) {
  ASSERT_EQ(make({"-o", "x.png", "--preview-file", "p.png", "--preview", "full"}).status, 0);
  EXPECT_LE(difference(picture("p.png"), picture("x.png")).max, 1);
  ASSERT_EQ(make({"-o", "x.png", "--preview-file", "none.png", "--preview", "off"}).status, 0);
  EXPECT_FALSE(exists("none.png"));
  EXPECT_THAT(make({"--preview-file", "p.png", "--preview", "small"}).err, HasSubstr("not one of off, linear, tiny, full"));
  EXPECT_THAT(make({"--preview-file", "p.png", "--preview", "tiny"}).err, HasSubstr("flux2 models install taef2"));
}

}  // namespace
}  // namespace flux2::test
