// Regions from the command line: made, recorded, made again; in the shell; and what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/mask.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class CliRegions : public Cli {
 protected:
  Image picture(const std::string& name) const { return read_image(folder_ / name); }
  Json settings_of(const std::string& name) const { return parse_json(flux2({"inspect", "--json", name}).out)["settings"]; }
};

TEST_F(CliRegions, AreRecordedAndComeBack) {
  Image mask(64, 64, 1);
  add_box(mask, {32, 0, 32, 64});
  save_image(folder_ / "right.png", encode_png(mask));
  ASSERT_EQ(generate({"a white background", "-S", "3", "-o", "plain.png"}).status, 0);
  const Image plain = picture("plain.png");
  const std::string left = "a red circle@0,0,32,32";
  const Finished made = generate({"a white background", "-S", "3", "--region", left, "--region", "a blue square", "--region-mask",
                                  "right.png", "--region-reference", "2:plain.png", "-o", "a.png"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_NE(picture("a.png"), plain);
  const Json settings = settings_of("a.png");
  EXPECT_EQ(settings["regions"], Json({left, "a blue square"}));
  EXPECT_EQ(settings["region_masks"][0]["name"], "right.png");
  EXPECT_EQ(settings["region_references"][0]["region"], 2);

  const Finished again = flux2({"generate", "--from", "a.png", "-o", "b.png"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(picture("b.png"), picture("a.png"));
  EXPECT_EQ(flux2({"verify", "a.png"}).out, "a.png: identical\n");
  // Regions of the command line replace those of the image, with their files.
  ASSERT_EQ(flux2({"generate", "--from", "a.png", "--region", left, "-o", "c.png"}).status, 0);
  EXPECT_FALSE(settings_of("c.png").contains("region_masks"));
  // Wildcards are expanded in regions, too.
  ASSERT_EQ(generate({"a white background", "-S", "3", "--region", "a {red|red} circle@0,0,32,32", "-o", "d.png"}).status, 0);
  EXPECT_EQ(settings_of("d.png")["regions"], Json({left}));
}

TEST_F(CliRegions, MistakesAreExplained) {
  const Finished none = generate({"x", "--region", "a cat", "-o", "a.png"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--region: region 1 has no area"));
  EXPECT_THAT(none.err, HasSubstr("--region-mask FILE"));
  EXPECT_THAT(generate({"x", "--region", "a@0,0,32,32", "--tile", "x", "-o", "a.png"}).err, HasSubstr("--tile off"));
  EXPECT_THAT(generate({"x", "--region", "a@0,0,0,32", "-o", "a.png"}).err, HasSubstr("is not a box"));
  EXPECT_THAT(generate({"x", "--region", "a@0,0,32,32", "--region-reference", "a.png", "-o", "a.png"}).err, HasSubstr("N:FILE"));
}

}  // namespace
}  // namespace flux2::test
