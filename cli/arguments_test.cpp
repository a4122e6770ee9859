#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Arguments parse(std::vector<std::string> words) {
  return parse_arguments(generate_options(), foreign_options(), std::move(words));
}

std::string value(const Arguments& arguments, const std::string& name) {
  const auto found = arguments.options.find(name);
  return found == arguments.options.end() ? "(none)" : found->second.values.back();
}

std::string failure(std::vector<std::string> words) {
  try {
    parse(std::move(words));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
    return std::string(e.what()) + " | " + e.hint().plain();
  }
  return "(no error)";
}

TEST(Arguments, ReadsOptionsInEverySpelling) {
  const Arguments a = parse({"-s4", "--width=512", "-H", "256", "--time_rounding", "bfl", "-qvv", "a prompt"});
  EXPECT_EQ(value(a, "steps"), "4");
  EXPECT_EQ(value(a, "width"), "512");
  EXPECT_EQ(value(a, "height"), "256");
  EXPECT_EQ(value(a, "time-rounding"), "bfl");
  EXPECT_EQ(a.options.at("verbose").values.size(), 2u);
  EXPECT_EQ(value(a, "quiet"), "true");
  EXPECT_THAT(a.positional, ElementsAre("a prompt"));
}

TEST(Arguments, ValuesMayLookLikeOptions) {
  EXPECT_EQ(value(parse({"--seed", "-1"}), "seed"), "-1");
  EXPECT_EQ(value(parse({"-p", "-"}), "prompt"), "-");
  EXPECT_THAT(parse({"--", "--steps of a stair"}).positional, ElementsAre("--steps of a stair"));
}

TEST(Arguments, TheLastOneWins) { EXPECT_EQ(value(parse({"-s", "4", "-s", "8"}), "steps"), "8"); }

TEST(Arguments, UnderstandsOtherProgramsNames) {
  EXPECT_EQ(value(parse({"--num_steps", "8"}), "steps"), "8");
  EXPECT_EQ(value(parse({"--sampling-steps", "8"}), "steps"), "8");
  EXPECT_EQ(value(parse({"--image_size", "512", "768"}), "size"), "768x512");
  EXPECT_EQ(value(parse({"--negative_prompt", "dark"}), "negative"), "dark");
  EXPECT_EQ(value(parse({"--power", "--power-alpha", "3"}), "schedule"), "power");
  EXPECT_EQ(value(parse({"--power-alpha", "3"}), "schedule"), "power:3");
  EXPECT_EQ(value(parse({"--rng", "cuda"}), "noise"), "torch-cuda");
  EXPECT_EQ(value(parse({"--diffusion-model", "x", "--llm", "y", "--save_path", "z"}), "text-encoder"), "y");
  EXPECT_EQ(parse({"--diffusion-fa", "--mmap", "--sdpa"}).options.size(), 0u);
  EXPECT_EQ(value(parse({"--num_steps", "8", "--steps", "4"}), "steps"), "4");  // our own name wins
}

TEST(Arguments, NamesTheNearestOption) {
  EXPECT_THAT(failure({"--stpes", "4"}), HasSubstr("unknown option --stpes | did you mean --steps?"));
  EXPECT_THAT(failure({"--guidence=4"}), HasSubstr("--guidance"));
  EXPECT_THAT(failure({"--zzzzzzzzzzzz"}), HasSubstr("unknown option --zzzzzzzzzzzz"));
  EXPECT_THAT(failure({"--steps"}), HasSubstr("--steps"));
}

TEST(Arguments, FutureOptionsAreReportedAsUnavailable) {
  EXPECT_THAT(failure({"--place", "te=cpu"}), HasSubstr("--place te=cpu is not available yet"));
  EXPECT_THAT(failure({"--clip_on_cpu"}), HasSubstr("--clip-on-cpu te=cpu is not available yet"));
  EXPECT_EQ(failure({"--place", "auto", "--sampler", "euler", "--cache", "off", "--vae-tiling"}), "(no error)");
}

}  // namespace
}  // namespace flux2
