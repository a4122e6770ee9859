#include "app/picture_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "app/test_words.h"
#include "base/error.h"
#include "image/watermark.h"

namespace flux2 {
namespace {

std::string refusal(const std::vector<std::string>& words, const std::string& target) {
  try {
    PictureWriter(spec_of_words(words)).format_for(target);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint().plain();
  }
  return "";
}

TEST(PictureWriter, TakesTheFormatFromTheRequestOrTheName) {
  const auto format = [](const std::vector<std::string>& words, const std::string& target) {
    return PictureWriter(spec_of_words(words)).format_for(target);
  };
  EXPECT_EQ(format({}, "x.jpg"), ImageFormat::Jpeg);
  EXPECT_EQ(format({}, "folder/"), ImageFormat::Png);
  EXPECT_EQ(format({"--format", "jpg"}, "folder/"), ImageFormat::Jpeg);
  EXPECT_EQ(format({"--format", "jpg"}, "{seq}.{ext}"), ImageFormat::Jpeg);
  EXPECT_EQ(format({"--format", "jpg"}, "x.jpeg"), ImageFormat::Jpeg);
  EXPECT_EQ(format({"--format", "jpg"}, "picture.of.a.fox"), ImageFormat::Jpeg);
  EXPECT_EQ(format({"--format", "jpg"}, "-"), ImageFormat::Jpeg);
}

TEST(PictureWriter, RefusesAFormatThatTheNameContradicts) {
  EXPECT_EQ(refusal({"--format", "jpg"}, "x.png"),
            "--format jpg contradicts the file name x.png | end the name with .jpg, or leave out format");
  EXPECT_EQ(refusal({"--format", "jpg", "--output-type", "latent"}, "x.png"), "");
  RequestSpec configured = spec_of_words({"--format", "jpg"});
  configured.defaults.insert("format");
  EXPECT_EQ(PictureWriter(configured).format_for("x.png"), ImageFormat::Png);
}

TEST(PictureWriter, WarnsOfAQualityThatTheFormatDoesNotHave) {
  const auto warning = [](RequestSpec spec, const std::string& target) {
    std::string text;
    PictureWriter writer(spec);
    writer.expect(target, 1);
    writer.check_targets(Log([&](LogLevel, const std::string& line) { text += line; }));
    return text;
  };
  const RequestSpec asked = spec_of_words({"--quality", "80"});
  EXPECT_EQ(warning(asked, "x.png"), "--quality has no effect: only jpg and webp have a quality");
  EXPECT_EQ(warning(asked, "x.jpg"), "");
  EXPECT_EQ(warning({}, "x.png"), "");
  EXPECT_EQ(warning(spec_of_words({"--quality", "80", "--format", "webp"}), "{seq}.{ext}"), "");
  RequestSpec configured = asked;
  configured.defaults.insert("quality");
  EXPECT_EQ(warning(configured, "x.png"), "");
}

TEST(PictureWriter, LeavesOutTheMarkOfGeneratedImagesOnlyWithoutMetadata) {
  EXPECT_EQ(refusal({"--no-provenance", "--metadata", "none"}, "x.png"), "");
  EXPECT_EQ(refusal({"--no-provenance"}, "x.png"),
            "--no-provenance: the other metadata would still say that a model generated the image | use it together with "
            "metadata=none");
  RequestSpec configured = spec_of_words({"--no-provenance"});
  configured.defaults.insert("no_provenance");
  EXPECT_TRUE(chosen_metadata(configured).provenance);
}

TEST(PictureWriter, SaysIfAFinishedImageDoesNotHoldItsWatermark) {
  const WatermarkBits bits = watermark_bits("flux");
  const auto warning = [&](uint8_t level, bool is_recorded, const Finish& finish) {
    Image made(256, 256, 3);
    std::fill(made.pixels.begin(), made.pixels.end(), level);
    GenerationRecord record;
    if (is_recorded) record.request.watermark = "flux";
    return PictureWriter(RequestSpec{}).encoded({}, made, record, "x.png", finish).warning;
  };
  const Finish mark = [&](const Image& image) { return with_watermark(image, bits); };
  EXPECT_THAT(warning(255, true, mark), testing::HasSubstr("the watermark cannot be read"));
  EXPECT_EQ(warning(128, true, mark), "");
  EXPECT_EQ(warning(255, false, mark), "");
  EXPECT_EQ(warning(255, true, {}), "") << "it was checked when it was generated";
}

}  // namespace
}  // namespace flux2
