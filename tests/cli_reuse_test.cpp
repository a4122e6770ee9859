// The settings recorded in an image are reused: its model, its quantisation, its mask. Also: files with wrong contents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/program.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class CliReuse : public Cli {
 protected:
  Image picture(const std::string& name) const { return read_image(folder_ / name); }
  Json settings_of(const std::string& name) const { return parse_json(flux2({"inspect", "--json", name}).out)["settings"]; }
  // With a setting of the environment.
  Finished configured(const std::string& variable, const std::string& value, std::vector<std::string> words) const {
    Start s = start(std::move(words));
    s.environment[variable] = value;
    return run(s);
  }
};

TEST_F(CliReuse, RecordedQuantisationIsReused) {
  ASSERT_EQ(generate({"a red circle", "-S", "3", "--quant", "q4_0", "-o", "q.png"}).status, 0);
  ASSERT_EQ(generate({"a red circle", "-S", "3", "-o", "plain.png"}).status, 0);
  ASSERT_NE(picture("q.png"), picture("plain.png"));
  EXPECT_EQ(settings_of("q.png")["model"]["quant_on_load"], "q4_0");
  EXPECT_EQ(settings_of("plain.png")["model"]["quant_on_load"], "none");
  EXPECT_EQ(flux2({"verify", "q.png"}).out, "q.png: identical\n");
  EXPECT_EQ(flux2({"verify", "q.png", "--quant", "none"}).status, 10);
  ASSERT_EQ(flux2({"generate", "--from", "q.png", "-o", "again.png"}).status, 0);
  EXPECT_EQ(picture("again.png"), picture("q.png"));
  ASSERT_EQ(flux2({"generate", "--from", "q.png", "--quant", "none", "-o", "other.png"}).status, 0);
  EXPECT_EQ(picture("other.png"), picture("plain.png"));
}

TEST_F(CliReuse, RecordedModelIsReused) {
  ASSERT_EQ(flux2({"convert", pico("flux-2-pico.safetensors"), "-o", "small.gguf", "--quant", "q4_0", "-q"}).status, 0);
  ASSERT_EQ(generate({"a red circle", "-S", "3", "-m", "small.gguf", "-o", "s.png"}).status, 0);
  const Json model = settings_of("s.png")["model"];
  EXPECT_EQ(model["file"], "small.gguf");

  // The file is next to the image.
  EXPECT_EQ(flux2({"verify", "s.png"}).out, "s.png: identical\n");
  const Finished again = flux2({"generate", "--from", "s.png", "-o", "again.png"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("another file")));
  EXPECT_EQ(picture("again.png"), picture("s.png"));

  // The file is gone, and the bundled model with that name is a different file.
  fs::create_directories(folder_ / "elsewhere");
  fs::rename(folder_ / "small.gguf", folder_ / "elsewhere/small.gguf");
  const Finished gone = flux2({"verify", "s.png"});
  EXPECT_NE(gone.status, 0);
  EXPECT_EQ(gone.out, "");
  EXPECT_THAT(gone.err, HasSubstr("s.png was made with another file of pico"));
  EXPECT_THAT(gone.err, HasSubstr("--model"));
  EXPECT_EQ(flux2({"verify", "s.png", "-m", "elsewhere/small.gguf"}).out, "s.png: identical\n");
  const Finished other = flux2({"generate", "--from", "s.png", "-o", "other.png"});
  ASSERT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("warning: s.png was made with another file of pico"));

  // A registered file is found by its content, whatever it is called.
  const Finished added = flux2({"models", "add", "elsewhere/small.gguf", "--name", "tiny-one"});
  if (added.status == 0) {  // built with SQLite
    EXPECT_EQ(flux2({"verify", "s.png"}).out, "s.png: identical\n");
  }
}

TEST_F(CliReuse, RecordedModelWinsOverAConfiguredTransformer) {
  ASSERT_EQ(flux2({"convert", pico("flux-2-pico.safetensors"), "-o", "small.gguf", "--quant", "q4_0", "-q"}).status, 0);
  const auto with_dit = [&](const std::vector<std::string>& words) { return configured("FLUX2_DIT", "small.gguf", words); };
  const std::vector<std::string> words = {"generate", "a red circle", "-S", "3", "-s", "2"};
  const auto made = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    more.insert(more.end(), {"-o", name});
    const Finished result = with_dit(more);
    EXPECT_EQ(result.status, 0) << result.err;
    return picture(name);
  };
  ASSERT_EQ(generate({"a red circle", "-S", "3", "-o", "plain.png"}).status, 0);
  const Image plain = picture("plain.png"), small = made("small.png", {});
  ASSERT_NE(small, plain);
  EXPECT_EQ(made("typed.png", {"-m", "pico"}), plain) << "a model that is typed wins over a configured file";

  for (const char* name : {"plain.png", "small.png"}) {
    const Finished again = with_dit({"generate", "--from", name, "-o", "again.png"});
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(picture("again.png"), picture(name)) << name;
    EXPECT_THAT(again.err, Not(HasSubstr("was made with")));
    const Finished verified = with_dit({"verify", name});
    EXPECT_EQ(verified.out, std::string(name) + ": identical\n") << verified.err;
  }
  ASSERT_EQ(with_dit({"grid", "--from", "plain.png", "--x", "steps=2", "-o", "sheet.png"}).status, 0);
  EXPECT_EQ(picture("sheet-01.png"), plain);
  ASSERT_EQ(with_dit({"grid", "--from", "small.png", "--x", "model=pico", "-o", "models.png"}).status, 0);
  EXPECT_EQ(picture("models-01.png"), plain);
  // What is typed wins over both.
  ASSERT_EQ(flux2({"generate", "--from", "plain.png", "--dit", "small.gguf", "-o", "other.png"}).status, 0);
  EXPECT_EQ(picture("other.png"), small);
}

TEST_F(CliReuse, RecordedRoundingIsReused) {
  ASSERT_EQ(generate({"a red circle", "-S", "3", "-o", "nearest.png"}).status, 0);
  ASSERT_EQ(generate({"a red circle", "-S", "3", "--rounding", "trunc", "-o", "trunc.png"}).status, 0);
  ASSERT_NE(picture("trunc.png"), picture("nearest.png"));
  EXPECT_EQ(settings_of("trunc.png")["rounding"], "trunc");
  EXPECT_EQ(settings_of("nearest.png")["rounding"], "nearest");
  EXPECT_EQ(flux2({"verify", "trunc.png"}).out, "trunc.png: identical\n");
  ASSERT_EQ(flux2({"generate", "--from", "trunc.png", "-o", "again.png"}).status, 0);
  EXPECT_EQ(picture("again.png"), picture("trunc.png"));
  EXPECT_EQ(configured("FLUX2_ROUNDING", "trunc", {"verify", "nearest.png"}).out, "nearest.png: identical\n");
  ASSERT_EQ(flux2({"grid", "--from", "trunc.png", "--x", "steps=2", "-o", "sheet.png"}).status, 0);
  EXPECT_EQ(picture("sheet-01.png"), picture("trunc.png"));
  ASSERT_EQ(flux2({"grid", "--from", "nearest.png", "--x", "rounding=nearest,trunc", "-o", "both.png"}).status, 0);
  EXPECT_EQ(picture("both-01.png"), picture("nearest.png"));
  EXPECT_EQ(picture("both-02.png"), picture("trunc.png"));
}

TEST_F(CliReuse, AModelThatIsNotInstalledIsNamed) {
  ASSERT_EQ(flux2({"models", "synth", "--variant", "tiny", "--out", "made"}).status, 0);
  const Finished first = generate({"a fox", "-S", "3", "-m", "made", "--size", "64", "-o", "t.png"});
  ASSERT_EQ(first.status, 0) << first.err;
  fs::rename(folder_ / "made", folder_ / "moved");
  const Finished verified = flux2({"verify", "t.png"});
  EXPECT_EQ(verified.status, 3) << verified.err;
  EXPECT_THAT(verified.err, HasSubstr("which is not installed"));
  const Finished from = flux2({"generate", "--from", "t.png", "--cfg", "1", "-o", "u.png"});
  EXPECT_THAT(from.err, HasSubstr("which is not installed; the default model is used"));
}

TEST_F(CliReuse, MaskIsReusedOrRequested) {
  Image canvas(160, 128, 3), mask(160, 128, 1);
  for (size_t i = 0; i < canvas.pixels.size(); ++i) canvas.pixels[i] = static_cast<uint8_t>(i / 5);
  for (int y = 30; y < 80; ++y) std::fill_n(mask.at(40, y), 50, uint8_t{255});
  save_image(folder_ / "canvas.png", encode_png(canvas));
  save_image(folder_ / "mask.png", encode_png(mask));
  ASSERT_EQ(
      flux2({"inpaint", "-i", "canvas.png", "--mask", "mask.png", "a red circle", "-s", "2", "-S", "5", "-o", "a.png"}).status,
      0);
  EXPECT_EQ(settings_of("a.png")["mask"]["name"], "mask.png");
  for (const char* command : {"inpaint", "generate"}) {
    const Finished again = flux2({command, "--from", "a.png", "-o", "b.png"});
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(picture("b.png"), picture("a.png")) << command;
  }
  fs::rename(folder_ / "mask.png", folder_ / "renamed.png");
  for (const char* command : {"inpaint", "generate"}) {
    const Finished missing = flux2({command, "--from", "a.png", "-o", "c.png"});
    EXPECT_EQ(missing.status, 3);
    EXPECT_THAT(missing.err, HasSubstr("a.png was inpainted with the mask mask.png, which is not beside it"));
    EXPECT_THAT(missing.err, HasSubstr("pass the mask to `flux2 inpaint` with --mask FILE"));
  }
  EXPECT_FALSE(exists("c.png"));
  ASSERT_EQ(flux2({"inpaint", "--from", "a.png", "--mask", "renamed.png", "-o", "d.png"}).status, 0);
  EXPECT_EQ(picture("d.png"), picture("a.png"));
  ASSERT_EQ(
      flux2({"inpaint", "-i", "canvas.png", "--mask", "renamed.png", "a cat", "-s", "1", "--private", "-o", "p.png"}).status, 0);
  EXPECT_THAT(bytes("p.png"), Not(HasSubstr("renamed.png")));
}

TEST_F(CliReuse, ImagesComeFromStandardInput) {
  ASSERT_EQ(generate({"a red circle", "-S", "1", "--size", "96x112", "-o", "a.png"}).status, 0);
  const Finished named = flux2({"edit", "-i", "a.png", "a blue square", "-s", "2", "-S", "1", "-o", "named.png"});
  ASSERT_EQ(named.status, 0) << named.err;
  const Finished piped = flux2({"edit", "-i", "-", "a blue square", "-s", "2", "-S", "1", "-o", "piped.png"}, bytes("a.png"));
  ASSERT_EQ(piped.status, 0) << piped.err;
  EXPECT_EQ(picture("piped.png"), picture("named.png"));
  EXPECT_EQ(settings_of("piped.png")["references"][0]["sha256"], settings_of("named.png")["references"][0]["sha256"]);

  Image mask(96, 112, 1);
  std::fill_n(mask.at(0, 20), 96 * 40, uint8_t{255});
  const auto encoded = encode_png(mask);
  const std::string mask_bytes(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  const Finished masked = flux2({"inpaint", "-i", "a.png", "--mask", "-", "a cat", "-s", "1", "-o", "m.png"}, mask_bytes);
  EXPECT_EQ(masked.status, 0) << masked.err;

  const Finished both = flux2({"inpaint", "-i", "-", "--mask", "-", "a cat", "-o", "x.png"}, mask_bytes);
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, HasSubstr("standard input holds one image"));
  EXPECT_THAT(flux2({"edit", "-i", "-", "-p", "-"}, mask_bytes).err, HasSubstr("cannot both come from standard input"));
  EXPECT_THAT(flux2({"edit", "-i", "-", "a cat"}).err, HasSubstr("standard input holds no image"));
  EXPECT_THAT(flux2({"edit", "-i", "-", "a cat"}, "no picture").err, HasSubstr("standard input"));
}

TEST_F(CliReuse, InspectRefusesGarbage) {
  const Finished fake = flux2({"inspect", write("fake.png", "this is not a picture, whatever its name says")});
  EXPECT_EQ(fake.status, 4);
  EXPECT_THAT(fake.err, HasSubstr("fake.png is not an image that this program reads, and not a model either"));
  EXPECT_THAT(fake.err, Not(HasSubstr("header")));
  const Finished text = flux2({"inspect", write("notes.txt", "some notes of mine, not a model at all")});
  EXPECT_EQ(text.status, 4);
  EXPECT_THAT(text.err, HasSubstr("this is a text file, not a model"));
  std::string garbage;
  for (int i = 0; i < 1000; ++i) garbage += static_cast<char>(i * 37 + i / 11);
  for (const char* name : {"garbage.png", "garbage.bin", "garbage.safetensors"}) {
    const Finished binary = flux2({"inspect", write(name, garbage)});
    EXPECT_EQ(binary.status, 4) << name;
    EXPECT_THAT(binary.err, Not(HasSubstr("bytes"))) << name;
  }
}

// A LoRA under FLUX.1's names and with its shapes.
void write_flux1(const fs::path& path, const std::string& style) {
  const std::vector<float> zeros(64 * 1024);
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto add = [&](const std::string& layer, int64_t out, int64_t in) {
    const bool kohya = style == "kohya";
    tensors.emplace_back(layer + (kohya ? ".lora_down.weight" : ".lora_A.weight"),
                         Tensor::host_copy(zeros.data(), DType::F32, {2, in}));
    tensors.emplace_back(layer + (kohya ? ".lora_up.weight" : ".lora_B.weight"),
                         Tensor::host_copy(zeros.data(), DType::F32, {out, 2}));
  };
  for (int i = 0; i < 19; ++i) {
    if (style == "kohya") add("lora_unet_double_blocks_" + std::to_string(i) + "_img_attn_qkv", 9216, 3072);
    else add("transformer.transformer_blocks." + std::to_string(i) + ".attn.to_q", 3072, 3072);
  }
  save_tensors(path, tensors);
}

TEST_F(CliReuse, LoraToolsRefuseFilesOfFlux1) {
  for (const std::string style : {"kohya", "peft"}) {
    write_flux1(folder_ / "old.safetensors", style);
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"lora", "check", "old.safetensors"},
          {"lora", "check", "old.safetensors", "-m", "klein-4b"},
          {"lora", "convert", "old.safetensors", "-m", "klein-4b", "-o", "new.safetensors"},
          {"lora", "convert", "old.safetensors", "-o", "new.safetensors"}}) {
      const Finished refused = flux2(words);
      EXPECT_EQ(refused.status, 4) << style << ": " << refused.out << refused.err;
      EXPECT_THAT(refused.err, HasSubstr("adapter was made for FLUX.1"));
    }
  }
  EXPECT_FALSE(exists("new.safetensors"));
}

TEST_F(CliReuse, LatentsAreSavedAndDecodedLater) {
  ASSERT_EQ(generate({"a red circle", "-S", "3", "-o", "plain.png"}).status, 0);
  const Finished latent = generate({"a red circle", "-S", "3", "--until", "latents", "-o", "x.png"});
  ASSERT_EQ(latent.status, 0) << latent.err;
  EXPECT_EQ(latent.out, "x.safetensors\n");
  EXPECT_FALSE(exists("x.png"));
  const auto saved = open_weights(folder_ / "x.safetensors");
  EXPECT_EQ(saved->find("latent")->shape, (Shape{128, 8, 8}));
  EXPECT_EQ(saved->metadata().at("prompt"), "a red circle");

  const Finished decoded = flux2({"generate", "--latent_path", "x.safetensors", "-o", "x.png"});
  ASSERT_EQ(decoded.status, 0) << decoded.err;
  EXPECT_EQ(picture("x.png"), picture("plain.png"));
  const Json settings = settings_of("x.png");
  EXPECT_EQ(settings["prompt"], "a red circle");
  EXPECT_EQ(settings["seed"], 3);
  EXPECT_EQ(settings["model"]["id"], "pico");
  const Finished alone = flux2({"generate", "--vae", pico("ae.safetensors"), "--latent_path", "x.safetensors", "-o", "y.png"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(picture("y.png"), picture("plain.png"));
  ASSERT_EQ(flux2({"vae", "decode", "x.safetensors", "-o", "z.png"}).status, 0);
  EXPECT_EQ(picture("z.png"), picture("plain.png"));

  const Finished both =
      generate({"a red circle", "-S", "3", "-b", "2", "--output_type", "latent_images", "-o", "b.png", "--json"});
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_EQ(parse_json(both.out)["images"][1]["latents"], "b-02.safetensors");
  EXPECT_TRUE(exists("b-01.png") && exists("b-02.png") && exists("b-01.safetensors"));
  const Finished several = flux2({"generate", "--latent_path", "b-01.safetensors", "b-02.safetensors", "-o", "again.png"});
  ASSERT_EQ(several.status, 0) << several.err;
  EXPECT_EQ(picture("again-02.png"), picture("b-02.png"));

  EXPECT_EQ(generate({"a red circle", "--output_type", "latent", "-o", "-"}).status, 2);
  EXPECT_EQ(flux2({"generate", "--latent_path", pico("ae.safetensors"), "-o", "n.png"}).status, 4);
}

TEST_F(CliReuse, MusubiMemoryOptionsTakeEffect) {
  const std::vector<std::string> common = {"a red circle", "-S", "3"};
  const auto made = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    more.insert(more.end(), {"-o", name});
    const Finished result = generate(more);
    EXPECT_EQ(result.status, 0) << result.err;
    return picture(name);
  };
  const Image plain = made("plain.png", {});
  EXPECT_EQ(made("swapped.png", {"--blocks_to_swap", "3"}), plain);
  made("encoder.png", {"--fp8_text_encoder"});
  const Json model = settings_of("encoder.png")["model"];
  EXPECT_EQ(model["text_encoder_quant"], "fp8");
  EXPECT_EQ(model["quant_on_load"], "none");
  EXPECT_EQ(flux2({"verify", "encoder.png"}).out, "encoder.png: identical\n");
  made("f32.png", {"--vae_dtype", "float32"});
  EXPECT_EQ(settings_of("f32.png")["vae_dtype"], "float32");
  EXPECT_EQ(flux2({"verify", "f32.png"}).out, "f32.png: identical\n");
  EXPECT_THAT(generate({"a red circle", "--vae_dtype", "float16"}).err, HasSubstr("float32, bfloat16"));
  EXPECT_THAT(generate({"a red circle", "--vae_dtype", "bfloat16", "--profile", "exact"}).err,
              HasSubstr("profile exact decodes in float32"));
  EXPECT_THAT(generate({"a red circle", "--dit", pico("flux-2-pico.safetensors"), "--model_version", "klein-4b"}).err,
              HasSubstr("but the requested model is klein-4b"));
}

TEST_F(CliReuse, AdaptersAreMergedWithoutMakingAnImage) {
  const Shape shape = open_weights(pico("flux-2-pico.safetensors"))->find("single_blocks.0.linear2.weight")->shape;
  std::vector<float> values;
  for (int64_t i = 0; i < 2 * (shape[0] + shape[1]); ++i) values.push_back(static_cast<float>(i * 37 % 101) / 400 - 0.12f);
  save_tensors(folder_ / "ink.safetensors", {{"diffusion_model.single_blocks.0.linear2.lora_A.weight",
                                              Tensor::host_copy(values.data(), DType::F32, {2, shape[1]})},
                                             {"diffusion_model.single_blocks.0.linear2.lora_B.weight",
                                              Tensor::host_copy(values.data() + 2 * shape[1], DType::F32, {shape[0], 2})}});
  const Finished merged = flux2(
      {"generate", "--lora_weight", "ink.safetensors", "--lora_multiplier", "0.5", "--save_merged_model", "merged.safetensors"});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(merged.out, "merged.safetensors\n");
  EXPECT_FALSE(exists("outputs"));
  ASSERT_EQ(
      flux2({"lora", "merge", "ink.safetensors:0.5", "--into", pico("flux-2-pico.safetensors"), "-o", "same.safetensors"}).status,
      0);
  EXPECT_EQ(bytes("merged.safetensors"), bytes("same.safetensors"));
  EXPECT_THAT(flux2({"generate", "--save_merged_model", "x.safetensors"}).err, HasSubstr("no adapter was given to merge"));

  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"a red circle", "-S", "3", "--lora_weight", "ink.safetensors", "-o", "p.png"});
    const Finished result = generate(more);
    EXPECT_EQ(result.status, 0) << result.err;
    return picture("p.png");
  };
  const Image all = with({});
  EXPECT_EQ(with({"--include_patterns", "single_transformer_blocks.0"}), all);
  EXPECT_EQ(with({"--exclude_patterns", "double"}), all);
  EXPECT_NE(with({"--lora_multiplier", "0.1"}), all);
  EXPECT_THAT(generate({"a cat", "--lora_weight", "ink.safetensors", "--exclude_patterns", "single_transformer_blocks.0"}).err,
              HasSubstr("excludes all layers"));
}

}  // namespace
}  // namespace flux2::test
