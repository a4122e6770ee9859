#include "app/resolve_regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "app/test_words.h"
#include "base/error.h"
#include "image/write_image.h"
#include "pipeline/regions.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RegionsOf : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, const Image& image) const {
    save_image(folder_ / name, encode_png(image));
    return (folder_ / name).string();
  }
  ResolvedRequest ask(const std::vector<std::string>& words, Task task = Task::Generate) const {
    RequestSpec spec = spec_of_words(words);
    spec.prompt = "a field";
    if (task == Task::Generate) spec.width = 128, spec.height = 64;
    return resolve(spec, model_, task, Log([this](LogLevel level, const std::string& text) {
                     if (level == LogLevel::Warning) warnings_.push_back(text);
                   }));
  }
  std::string refusal(std::vector<std::string> words, Task task = Task::Generate) const {
    try {
      ask(std::move(words), task);
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return "";
  }

  // White in its left half.
  static Image half(int width, int height) {
    Image mask(width, height, 1);
    add_box(mask, {0, 0, width / 2, height});
    return mask;
  }

  ModelFiles model_;
  mutable std::vector<std::string> warnings_;
  fs::path folder_ = fs::path(testing::TempDir()) / ("regions-" + std::to_string(::getpid()));
};

TEST_F(RegionsOf, RectanglesAndMasks) {
  const std::string mask = file("mask.png", half(128, 64));
  const ResolvedRequest resolved =
      ask({"--region", "a cat@64,0,64,32", "--region", "a dog", "--region-mask", mask, "--region", "a hat@0,32,128,32"});
  const Request& request = resolved.request;
  ASSERT_EQ(request.regions.size(), 3u);
  EXPECT_EQ(request.regions[0].prompt, "a cat");
  EXPECT_EQ(request.regions[1].prompt, "a dog");
  const auto tokens = regions_of_tokens(request);  // 8 × 4
  EXPECT_EQ(tokens[0], 2u);
  EXPECT_EQ(tokens[7], 1u);
  EXPECT_EQ(tokens[16], 6u);
  EXPECT_EQ(tokens[31], 4u);
  EXPECT_EQ(resolved.record.request.region->at(0), "a cat@64,0,64,32");
  ASSERT_EQ(resolved.record.region_masks.size(), 1u);
  EXPECT_EQ(resolved.record.region_masks[0].name, "mask.png");
  // A mask of another size is scaled if its aspect ratio is that of the image.
  const std::string larger = file("larger.png", half(256, 128));
  EXPECT_EQ(regions_of_tokens(ask({"--region", "a", "--region-mask", larger}).request)[0], 1u);
}

TEST_F(RegionsOf, ReferencesOfRegions) {
  const std::string a = file("a.png", Image(64, 64, 3)), b = file("b.png", Image(96, 64, 3));
  const ResolvedRequest resolved =
      ask({"-i", a, "--region", "x@0,0,64,64", "--region", "y@64,0,64,64", "--region-reference", "2:" + b, "--match", "off"});
  EXPECT_EQ(resolved.request.references.size(), 1u);
  EXPECT_TRUE(resolved.request.regions[0].references.empty());
  ASSERT_EQ(resolved.request.regions[1].references.size(), 1u);
  EXPECT_EQ(resolved.request.regions[1].references[0]->width, 96);
  EXPECT_EQ(resolved.request.reference_tokens(), 16 + 24);
  ASSERT_EQ(resolved.record.region_references.size(), 1u);
  EXPECT_EQ(resolved.record.region_references[0].region, 2);
  EXPECT_EQ(resolved.record.region_references[0].picture.name, "b.png");
}

TEST_F(RegionsOf, TheirReferencesAloneFollowRefKv) {
  const std::string reference = file("r.png", Image(64, 64, 3)), canvas = file("canvas.png", Image(640, 480, 3));
  const std::vector<std::string> generate = {"--region", "a@0,0,64,64", "--region-reference", "1:" + reference};
  const std::vector<std::string> inpaint = {"-i",   canvas,     "--mask-box",    "100,100,80,80",      "--context",
                                            "none", "--region", "a@0,0,140,480", "--region-reference", "1:" + reference};
  const auto with = [](std::vector<std::string> words, const std::string& how) {
    words.insert(words.end(), {"--ref-kv", how});
    return words;
  };
  const auto about_keys = testing::Contains(HasSubstr("trained to reuse the keys of references"));
  for (const auto& [asked, task] : {std::pair(generate, Task::Generate), std::pair(inpaint, Task::Inpaint)}) {
    model_ = {};
    warnings_.clear();
    EXPECT_EQ(ask(asked, task).record.request.ref_kv, "off");
    EXPECT_THAT(warnings_, testing::Not(about_keys));
    EXPECT_THAT(refusal(with(asked, "on"), task), HasSubstr("ref_kv=off"));

    model_.kv = true;
    warnings_.clear();
    EXPECT_THAT(refusal(asked, task), HasSubstr("ref_kv=off"));
    const ResolvedRequest resolved = ask(with(asked, "off"), task);
    EXPECT_FALSE(resolved.request.reuse_reference_keys);
    EXPECT_EQ(resolved.record.request.ref_kv, "off");
    EXPECT_THAT(warnings_, about_keys);
  }
  EXPECT_EQ(refusal({"--region", "a@0,0,64,64"}), "") << "a region without references";
}

TEST_F(RegionsOf, RecordComesBack) {
  const std::string mask = file("mask.png", half(128, 64)), reference = file("r.png", Image(64, 64, 3));
  const ResolvedRequest resolved = ask({"--region", "a cat@64,0,64,32", "--region", "a dog", "--region-mask", mask,
                                        "--region-reference", "1:" + reference, "--seed", "1"});
  const GenerationRecord read = record_from_json(to_json(resolved.record));
  RequestSpec spec = spec_of_record(read);
  EXPECT_EQ(spec.region, resolved.record.request.region);
  take_region_files(read, (folder_ / "made.png").string(), spec);
  EXPECT_EQ(spec.region_mask, std::vector<std::string>{mask});
  EXPECT_EQ(spec.region_reference, std::vector<std::string>{"1:" + reference});
  // The mask is gone.
  fs::remove(mask);
  try {
    take_region_files(read, (folder_ / "made.png").string(), spec);
    ADD_FAILURE() << "a missing mask was accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("mask.png"));
  }
  // Private records keep neither prompts nor names.
  const Json hidden = to_json(resolved.record, true);
  EXPECT_FALSE(hidden.contains("regions"));
  EXPECT_EQ(hidden.dump().find("mask.png"), std::string::npos);
  RequestSpec empty;
  take_region_files(record_from_json(hidden), "x.png", empty);
  EXPECT_FALSE(empty.region_mask);
}

TEST_F(RegionsOf, WhatIsWrongIsSaid) {
  const std::string mask = file("mask.png", half(128, 64)), wrong = file("wrong.png", half(64, 64)),
                    reference = file("r.png", Image(64, 64, 3));
  EXPECT_THAT(refusal({"--region", "a cat"}), HasSubstr("region 1 has no area"));
  EXPECT_THAT(refusal({"--region", "a cat"}), HasSubstr("PROMPT@x,y,w,h"));
  EXPECT_THAT(refusal({"--region", "a cat@0,0,64,64", "--region-mask", mask}), HasSubstr("1 masks are given"));
  EXPECT_THAT(refusal({"--region-mask", mask}), HasSubstr("no region"));
  EXPECT_THAT(refusal({"--region", "a", "--region-mask", wrong}), HasSubstr("aspect ratio"));
  EXPECT_THAT(refusal({"--region", "a@0,0,64,64", "--region-reference", "2:" + reference}),
              HasSubstr("region 2 does not exist; the number of regions is 1"));
  EXPECT_THAT(refusal({"--region", "a@500,0,64,64"}), HasSubstr("--region: "));
  EXPECT_THAT(refusal({"--region", "a@0,0,4,4"}), HasSubstr("too small"));
  EXPECT_THAT(refusal({"--region", "a <lora:x:1>@0,0,64,64"}), HasSubstr("adapter"));
  EXPECT_THAT(refusal({"--region", "a@0,0,64,64", "--tile", "x"}), HasSubstr("seamless"));
  EXPECT_THAT(refusal({"--region", "a@0,0,64,64", "--ref-kv", "on", "-i", reference, "--match", "off", "--region-reference",
                       "1:" + reference}),
              HasSubstr("ref_kv=off"));
  EXPECT_EQ(refusal({"--region", "a@0,0,64,64", "--ref-kv", "on", "-i", reference, "--match", "off"}), "");
}

// Inpainting works on a part of the image; rectangles are about the whole image.
TEST_F(RegionsOf, FollowTheInpaintedPart) {
  const std::string canvas = file("canvas.png", Image(640, 480, 3));
  const ResolvedRequest resolved =
      ask({"-i", canvas, "--mask-box", "100,100,80,80", "--region", "left@0,0,140,480", "--region", "right@140,0,500,480"},
          Task::Inpaint);
  EXPECT_EQ(resolved.request.width, 176);
  const auto tokens = regions_of_tokens(resolved.request);
  EXPECT_EQ(tokens[0], 1u);
  EXPECT_EQ(tokens[10], 2u);
  EXPECT_EQ(resolved.record.request.region->size(), 2u);
  EXPECT_THAT(refusal({"-i", canvas, "--mask-box", "100,100,80,80", "--region", "far@600,400,40,40"}, Task::Inpaint),
              HasSubstr("region 1"));
}

}  // namespace
}  // namespace flux2
