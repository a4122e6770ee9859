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

TEST(Arguments, TextInBracketsIsNotAList) {
  const Arguments a = parse({"[a fox, a cat]", "-p", "[red, blue] [night]", "--lora", "[x]", "--", "[]"});
  EXPECT_THAT(a.positional, ElementsAre("[a fox, a cat]", "[]"));
  EXPECT_EQ(value(a, "prompt"), "[red, blue] [night]");
  EXPECT_THAT(a.options.at("lora").values, ElementsAre("[x]"));
  EXPECT_EQ(value(parse({"--negative_prompt", "[dark]"}), "negative"), "[dark]");
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

TEST(Arguments, UnderstandsMusubisLists) {
  const Arguments a = parse({"--lora_weight", "a.safetensors", "b.safetensors", "--lora_multiplier", "0.5", "-0.25", "a fox"});
  EXPECT_THAT(a.options.at("lora").values, ElementsAre("a.safetensors:0.5", "b.safetensors:-0.25"));
  EXPECT_THAT(a.positional, ElementsAre("a fox"));
  // As in musubi-tuner, values belong to files by position, and a file without one has strength 1.
  EXPECT_THAT(parse({"--lora_multiplier", "0.5", "--lora_weight", "a.safetensors", "b.safetensors"}).options.at("lora").values,
              ElementsAre("a.safetensors:0.5", "b.safetensors:1"));
  EXPECT_THAT(parse({"--lora_weight", "a.safetensors", "a fox"}).positional, ElementsAre("a fox"));
  const Arguments b = parse({"--lora_weight", "a.safetensors", "--lora-weight", "b.safetensors", "--include_patterns",
                             "single_.*", "double", "--exclude_patterns", "linear2", "--lora_multiplier", "2"});
  EXPECT_THAT(b.options.at("lora").values, ElementsAre("a.safetensors:2:single_.*&!linear2", "b.safetensors:1:double"));
  EXPECT_THAT(parse({"--lora_weight", "a.safetensors", "--exclude_patterns", "mlp"}).options.at("lora").values,
              ElementsAre("a.safetensors::!mlp"));
  EXPECT_THAT(failure({"--lora_weight", "a.safetensors", "--lora_multiplier", "1", "2"}),
              HasSubstr("--lora-multiplier has 2 values, but --lora-weight has 1"));
  EXPECT_THAT(failure({"--lora", "a.safetensors", "--lora_multiplier", "1"}), HasSubstr("--lora-weight has 0"));
  EXPECT_THAT(parse({"--control_image_path", "a.png", "b.jpg", "--prompt", "x"}).options.at("input").values,
              ElementsAre("a.png", "b.jpg"));
  EXPECT_THAT(parse({"--latent_path", "a.safetensors", "b.safetensors"}).options.at("latent-path").values,
              ElementsAre("a.safetensors", "b.safetensors"));
}

TEST(Arguments, UnderstandsMusubisMemoryOptions) {
  const Arguments a = parse({"--fp8_text_encoder", "--no_resize_control", "--blocks_to_swap", "5", "--vae_dtype", "float32",
                             "--model_version", "klein-base-4b", "--dit", "x", "--output_type", "latent"});
  EXPECT_EQ(value(a, "quant-text-encoder"), "fp8");
  EXPECT_EQ(value(a, "quant"), "(none)");
  EXPECT_EQ(value(a, "no-resize-ref"), "true");
  EXPECT_EQ(value(a, "blocks-to-swap"), "5");
  EXPECT_EQ(value(a, "vae-dtype"), "float32");
  EXPECT_EQ(value(a, "model"), "klein-base-4b");
  EXPECT_EQ(value(a, "dit"), "x");
  EXPECT_EQ(value(a, "output-type"), "latent");
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
