#include "app/resolve_inpaint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "app/test_words.h"
#include "base/error.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class InpaintOptionsOf : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, const Image& image) const {
    save_image(folder_ / name, encode_png(image));
    return (folder_ / name).string();
  }
  ResolvedRequest ask(std::vector<std::string> words) const {
    RequestSpec spec = spec_of_words(std::move(words));
    spec.prompt = "a fox";
    return resolve(spec, ModelFiles{}, Task::Inpaint);
  }
  std::string refusal(std::vector<std::string> words) const {
    try {
      ask(std::move(words));
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return "";
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("inpaint-" + std::to_string(::getpid()));
  std::string canvas_ = (fs::create_directories(folder_), file("canvas.png", Image(640, 480, 3)));
};

TEST_F(InpaintOptionsOf, KvModelsProcessTheCanvasOnce) {
  RequestSpec spec = spec_of_words({"-i", canvas_, "--mask-box", "0,0,600,400"});
  ModelFiles model;
  model.kv = true;
  const ResolvedRequest resolved = resolve(spec, model, Task::Inpaint);
  EXPECT_TRUE(resolved.request.reuse_reference_keys);
  EXPECT_EQ(resolved.record.request.ref_kv, "on");
  spec.context = "none";
  EXPECT_FALSE(resolve(spec, model, Task::Inpaint).request.reuse_reference_keys);
  EXPECT_FALSE(ask({"-i", canvas_, "--mask-box", "0,0,600,400"}).request.reuse_reference_keys);
}

TEST_F(InpaintOptionsOf, ARegionInsideTheImageHasNoEdgesThatMeet) {
  const auto seamless = [&](const std::string& box) {
    const ResolvedRequest resolved = ask({"-i", canvas_, "--tile", "both", "--mask-box", box});
    EXPECT_EQ(resolved.record.request.tile.has_value(), resolved.request.tile_x || resolved.request.tile_y);
    return std::pair(resolved.request.tile_x, resolved.request.tile_y);
  };
  EXPECT_EQ(seamless("200,200,60,60"), std::pair(false, false));
  EXPECT_EQ(seamless("0,200,640,40"), std::pair(true, false));
  EXPECT_EQ(seamless("0,0,640,480"), std::pair(true, true));
}

TEST_F(InpaintOptionsOf, SelectionsAddUp) {
  const ResolvedRequest both = ask({"-i", canvas_, "--mask-box", "100,100,10,10", "--mask-ellipse", "300,100,20,20", "--crop",
                                    "0", "--grow", "0", "--feather", "0"});
  EXPECT_GE(both.request.width, 220);
  EXPECT_EQ(both.record.request.mask_ellipse, std::vector<std::string>{"300,100,20,20"});
  Image changed(640, 480, 3);
  for (int x = 200; x < 264; ++x) *changed.at(x, 300) = 200;
  const std::string other = file("changed.png", changed);
  EXPECT_GE(ask({"-i", canvas_, "--mask-from-diff", other, "--crop", "0"}).request.width, 64);
  EXPECT_THAT(refusal({"-i", canvas_}), HasSubstr("mask_wand"));
  EXPECT_THAT(refusal({"-i", canvas_, "--mask-from-diff", canvas_}), HasSubstr("do not differ"));
  EXPECT_THAT(refusal({"-i", canvas_, "--mask-color", "#ffffff"}), HasSubstr("no pixel has the colour #ffffff"));
}

TEST_F(InpaintOptionsOf, BecomeARequestForTheRegion) {
  const std::string reference = file("r.png", Image(64, 96, 3));
  const ResolvedRequest resolved = ask({"-i", canvas_, "-i", reference, "--mask-box", "100,100,80,80", "--strength", "0.7"});
  EXPECT_EQ(resolved.request.width, 176);  // 80 + 2 · (8 + 8 + 32)
  EXPECT_EQ(resolved.request.height, 176);
  ASSERT_TRUE(resolved.request.canvas);
  EXPECT_EQ(resolved.request.canvas->strength, 0.7);
  ASSERT_EQ(resolved.request.references.size(), 2u);
  EXPECT_EQ(resolved.request.references[0], resolved.request.canvas->picture);
  EXPECT_EQ(resolved.request.references[1]->height, 96);
  EXPECT_EQ(resolved.record.kind, "inpaint");
  EXPECT_EQ(resolved.record.width(), 640);
  EXPECT_EQ(resolved.record.canvas->name, "canvas.png");
  EXPECT_EQ(resolved.record.request.mask_box, std::vector<std::string>{"100,100,80,80"});
  EXPECT_EQ(resolved.record.references.size(), 1u);
  EXPECT_EQ(ask({"-i", canvas_, "--mask-box", "100,100,80,80", "--context", "none"}).request.references.size(), 0u);
}

TEST_F(InpaintOptionsOf, FindTheMaskInEveryForm) {
  const auto width = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--crop", "0", "--grow", "0", "--feather", "0"});
    return ask(words).request.width;
  };
  Image mask(640, 480, 1);
  for (int y = 0; y < 64; ++y) std::fill_n(mask.at(0, y), 160, uint8_t{255});
  EXPECT_EQ(width({"-i", canvas_, "--mask", file("m.png", mask)}), 160);
  EXPECT_EQ(width({"-i", canvas_, "--mask", file("m.png", mask), "--mask-box", "0,0,320,10"}), 320);
  EXPECT_EQ(width({"-i", canvas_, "--mask", file("m.png", mask), "--mask-invert"}), 640);
  EXPECT_EQ(width({"-i", canvas_, "--extend", "64,0,0,0"}), 64);
  Image transparent(640, 480, 4);
  std::fill(transparent.pixels.begin(), transparent.pixels.end(), uint8_t{255});
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 80; ++x) transparent.at(x, y)[3] = 0;
  EXPECT_EQ(width({"-i", file("t.png", transparent)}), 80);
  EXPECT_EQ(ask({"-i", file("t.png", transparent)}).finish(Image(80 + 48, 64 + 48, 3)).channels, 3);
}

TEST_F(InpaintOptionsOf, ScaleAMaskOfAnotherSize) {
  Image mask(320, 240, 1);
  for (int y = 0; y < 32; ++y) std::fill_n(mask.at(0, y), 80, uint8_t{255});
  RequestSpec spec =
      spec_of_words({"-i", canvas_, "--mask", file("half.png", mask), "--crop", "0", "--grow", "0", "--feather", "0"});
  spec.prompt = "a fox";
  std::vector<std::string> warnings;
  const Log log([&](LogLevel, const std::string& line) { warnings.push_back(line); });
  const ResolvedRequest resolved = resolve(spec, ModelFiles{}, Task::Inpaint, log);
  EXPECT_EQ(resolved.request.width, 160);
  EXPECT_EQ(resolved.request.height, 64);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], "the mask half.png is 320x240 and is scaled to the size of the image, 640x480");
}

TEST_F(InpaintOptionsOf, FindTheMaskOfAnImageAgain) {
  Image mask(640, 480, 1);
  std::fill_n(mask.at(0, 0), 640 * 20, uint8_t{255});
  const std::string path = file("mask.png", mask), picture = (folder_ / "result.png").string();
  GenerationRecord record = ask({"-i", canvas_, "--mask", path}).record;
  EXPECT_EQ(record.mask_name, "mask.png");
  EXPECT_EQ(find_mask(record, picture), path);
  EXPECT_EQ(to_json(record, true)["mask"].count("name"), 0u);
  EXPECT_EQ(record_from_json(to_json(record)).mask_name, "mask.png");
  const auto missing = [&] {
    try {
      return find_mask(record, picture);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::NotFound);
      return std::string(e.what()) + " | " + e.hint().plain();
    }
  };
  file("mask.png", Image(640, 480, 1));  // a different file
  EXPECT_THAT(missing(), HasSubstr("was inpainted with the mask mask.png, which is not beside it | pass the mask to"));
  record.mask_name.clear();
  EXPECT_THAT(missing(), HasSubstr("does not say which file it was"));
}

TEST_F(InpaintOptionsOf, SizesAreThoseOfTheRegion) {
  const Request request = ask({"-i", canvas_, "--mask-box", "100,100,80,80", "--size", "512x256"}).request;
  EXPECT_EQ(request.width, 512);
  EXPECT_EQ(request.height, 256);
  const ResolvedRequest extended = ask({"-i", canvas_, "--extend", "0,0,100,0", "--crop", "off"});
  EXPECT_EQ(extended.record.width(), 740);
  EXPECT_EQ(extended.request.width, 752);
  EXPECT_EQ(extended.finish(Image(752, 480, 3)).width, 740);
}

TEST_F(InpaintOptionsOf, ASizeIsUsedOrRefused) {
  const std::vector<std::string> box = {"-i", canvas_, "--mask-box", "100,100,80,80"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), box.begin(), box.end());
    return more;
  };
  EXPECT_THAT(refusal(with({"-W", "768"})), HasSubstr("--width: inpainting needs the other side of the size too"));
  EXPECT_THAT(refusal(with({"--height", "768"})), HasSubstr("--height: inpainting needs"));
  std::vector<std::string> warnings;
  const Log log([&](LogLevel level, const std::string& text) {
    if (level == LogLevel::Warning) warnings.push_back(text);
  });
  for (const auto& [size, count] : {std::pair{"512x256", 1u}, {"640x480", 0u}}) {
    RequestSpec spec = spec_of_words(with({"--inpaint-mode", "diffusers", "--size", size}));
    spec.prompt = "a fox";
    warnings.clear();
    EXPECT_EQ(resolve(spec, ModelFiles{}, Task::Inpaint, log).request.width, 640);
    const auto about_size = [](const std::string& text) { return text.find("works at the size of the image") != text.npos; };
    EXPECT_EQ(std::count_if(warnings.begin(), warnings.end(), about_size), count) << size;
  }
}

// The record of an image gives the same request again.
TEST_F(InpaintOptionsOf, RoundTripInTheRecord) {
  const GenerationRecord record = ask({"-i", canvas_, "--mask-box", "9,9,80,80", "--grow", "3", "--feather", "0", "--extend",
                                       "0,0,16,0", "--strength", "0.5", "--align", "off", "--sampler", "heun", "--seed", "5"})
                                      .record;
  const auto sources = find_sources(record, (folder_ / "result.png").string());
  EXPECT_EQ(sources, std::vector<std::string>{canvas_});
  RequestSpec spec = spec_of_record(record);
  spec.input = sources;
  const ResolvedRequest again = resolve(spec, ModelFiles{}, Task::Inpaint);
  EXPECT_EQ(to_json(again.record).dump(), to_json(record).dump());
  fs::remove(canvas_);
  try {
    find_sources(record, (folder_ / "result.png").string());
    FAIL() << "the canvas is gone";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
    EXPECT_THAT(e.what(), HasSubstr("canvas.png"));
  }
}

TEST_F(InpaintOptionsOf, MarkTheKeptPartOnlyIfThatIsAllowed) {
  EXPECT_THAT(refusal({"-i", canvas_, "--mask-box", "100,100,80,80", "--watermark", "flux"}),
              HasSubstr("--watermark: a watermark would change the part of the image that inpainting keeps | allow that with"));
  EXPECT_EQ(refusal({"-i", canvas_, "--mask-box", "100,100,80,80", "--watermark", "off"}), "");
  const ResolvedRequest resolved = ask({"-i", canvas_, "--mask-box", "100,100,80,80", "--watermark", "flux", "--watermark-kept"});
  EXPECT_TRUE(resolved.request.watermark.empty()) << "the region must not be marked as well";
  EXPECT_EQ(resolved.record.request.watermark, "flux");
  const Image finished = resolved.finish(Image(resolved.request.width, resolved.request.height, 3));
  EXPECT_TRUE(find_watermark(finished, watermark_bits("flux")).is_found());
}

TEST_F(InpaintOptionsOf, AreRejectedWithOneSentence) {
  EXPECT_THAT(refusal({}), HasSubstr("inpainting needs an image"));
  EXPECT_THAT(refusal({"-i", canvas_}), HasSubstr("it is not clear which part of the image is meant | use mask=FILE"));
  EXPECT_THAT(refusal({"-i", canvas_, "--mask", file("s.png", Image(64, 64, 1))}),
              HasSubstr("the mask s.png is 64x64, the image canvas.png is 640x480: they need the same aspect ratio"));
  EXPECT_THAT(refusal({"-i", "-", "--mask", "-"}), HasSubstr("standard input holds one image"));
  EXPECT_THAT(refusal({"-i", canvas_, "--mask", "-"}), HasSubstr("cannot be read from standard input here"));
  EXPECT_THAT(refusal({"-i", canvas_, "--mask", file("e.png", Image(640, 480, 1))}), HasSubstr("the mask is empty"));
  EXPECT_THAT(refusal({"-i", canvas_, "--mask-box", "900,0,10,10"}), HasSubstr("--mask-box: the box 900,0,10,10 is outside"));
  EXPECT_THAT(refusal({"-i", canvas_, "-i", canvas_, "--mask-box", "100,100,80,80", "--match", "2"}),
              HasSubstr("--match 2: an inpainted image has the size of the image that is changed"));
  EXPECT_EQ(refusal({"-i", canvas_, "--mask-box", "100,100,80,80", "--match", "off"}), "");
  EXPECT_THAT(refusal({"-i", canvas_, "--extend", "1,2"}), HasSubstr("--extend: \"1,2\" is not left,top,right,bottom"));
  EXPECT_THAT(refusal({"-i", canvas_, "--mask-text", "the door", "--mask-service", "off"}),
              HasSubstr("--mask-text needs a mask service, and --mask-service is off"));
  EXPECT_THAT(refusal({"-i", canvas_, "--mask-text", "the door", "--mask-service", "http://127.0.0.1:1"}),
              HasSubstr("--mask-text: the mask service cannot be used"));
}

}  // namespace
}  // namespace flux2
