// grid, verify, upscale, lora and convert: their images and metadata are checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "image/difference.h"
#include "image/letters.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/random_upscaler.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class CliTools : public Cli {
 protected:
  Image picture(const std::string& name) const { return read_image(folder_ / name); }
  Json settings_of(const std::string& name) const { return parse_json(flux2({"inspect", "--json", name}).out)["settings"]; }
  void expect_made(const Finished& finished) const { ASSERT_EQ(finished.status, 0) << finished.err; }
};

std::array<double, 3> mean_colour(const Image& image) {
  std::array<double, 3> sum{};
  for (size_t i = 0; i < image.pixels.size(); ++i) sum[i % 3] += image.pixels[i];
  for (double& s : sum) s /= static_cast<double>(image.width) * image.height;
  return sum;
}

// Whether the text is drawn somewhere in the image.
bool shows(const Image& sheet, const std::string& words) {
  Image text(static_cast<int>(words.size()) * kLetterWidth, 9, 3);
  std::fill(text.pixels.begin(), text.pixels.end(), uint8_t{255});
  draw_text(text, 0, 0, words);
  for (int y = 0; y + text.height <= sheet.height; ++y)
    for (int x = 0; x + text.width <= sheet.width; ++x) {
      bool same = true;
      for (int row = 0; row < text.height && same; ++row)
        same = std::equal(text.row(row), text.row(row) + text.row_bytes(), sheet.at(x, y + row));
      if (same) return true;
    }
  return false;
}

TEST_F(CliTools, GridIsASheetOfItsSingleImages) {
  const Finished made = flux2({"grid", "a red circle", "--x", "steps=1,2", "--y", "seed=5..6", "--z",
                               "prompt=a red circle|a green star", "--size", "64x64", "-o", "g/sheet.png"});
  ASSERT_EQ(made.status, 0) << made.err;
  const Image sheet = picture("g/sheet.png");
  const Json settings = settings_of("g/sheet.png");
  EXPECT_EQ(settings["kind"], "grid");
  const Json& cells = settings["grid"]["cells"];
  ASSERT_EQ(cells.size(), 8u);
  for (const Json& cell : cells) {
    const Image single = picture("g/" + cell["file"].get<std::string>());
    const auto box = cell["box"].get<std::vector<int>>();
    EXPECT_EQ(crop(sheet, box[0], box[1], box[2], box[3]), single) << cell;
    const Json own = settings_of("g/" + cell["file"].get<std::string>());
    EXPECT_EQ(own["steps"], cell["steps"]);
    EXPECT_EQ(own["seed"], cell["seed"]);
    EXPECT_EQ(own["prompt"], cell["prompt"]);
  }
  EXPECT_EQ(cells[5]["steps"], 2);
  EXPECT_EQ(cells[5]["seed"], 5);
  EXPECT_EQ(cells[5]["prompt"], "a green star");
  for (const char* label : {"steps 1", "steps 2", "seed 5", "seed 6", "a red circle", "a green star"})
    EXPECT_TRUE(shows(sheet, label)) << label;
  // A cell is the image that generate makes with the same settings.
  expect_made(flux2({"generate", "a green star", "-s", "2", "-S", "5", "--size", "64x64", "-o", "single.png"}));
  EXPECT_EQ(picture("single.png"), picture("g/" + cells[5]["file"].get<std::string>()));

  // Without a seed axis, all cells share one random seed. --sheet-only writes no single images; the sheet may be lossy.
  expect_made(flux2({"grid", "a cat", "--x", "steps=1,2", "--size", "64", "--sheet-only", "--cell", "32", "-o", "s.jpg"}));
  EXPECT_FALSE(exists("s-01.jpg"));
  const Json small = settings_of("s.jpg")["grid"]["cells"];
  EXPECT_EQ(small[0]["seed"], small[1]["seed"]);
  EXPECT_EQ(small[0]["box"][2], 32);
}

TEST_F(CliTools, AGridOfAnInpaintedImageShowsTheWholeImage) {
  Image canvas(160, 128, 3);
  for (size_t i = 0; i < canvas.pixels.size(); ++i) canvas.pixels[i] = static_cast<uint8_t>(i / 5);
  save_image(folder_ / "canvas.png", encode_png(canvas));
  expect_made(flux2({"inpaint", "-i", "canvas.png", "--mask-box", "20,20,30,30", "--crop", "8", "a red circle", "-s", "1", "-S",
                     "5", "-o", "part.png"}));
  expect_made(flux2({"grid", "--from", "part.png", "--x", "steps=1", "-o", "g.png"}));
  EXPECT_EQ(picture("g-01.png"), picture("part.png"));
  const auto box = settings_of("g.png")["grid"]["cells"][0]["box"].get<std::vector<int>>();
  EXPECT_EQ(crop(picture("g.png"), box[0], box[1], box[2], box[3]), picture("part.png"));
}

TEST_F(CliTools, GridReportsErrorsBeforeItStarts) {
  const Finished value = flux2({"grid", "a cat", "--x", "steps=1,x"});
  EXPECT_EQ(value.status, 2);
  EXPECT_THAT(value.err, HasSubstr("\"x\" is not a whole number"));
  EXPECT_EQ(flux2({"grid", "a cat"}).status, 2);
  EXPECT_THAT(flux2({"grid", "a cat", "--x", "steps=1", "--y", "steps=2"}).err, HasSubstr("two axes"));
  EXPECT_THAT(flux2({"grid", "--x", "steps=1,2"}).err, HasSubstr("the prompt is missing"));
  EXPECT_FALSE(exists("outputs"));
}

TEST_F(CliTools, VerifyRegeneratesTheImage) {
  expect_made(generate({"a red circle, {big|small}", "-S", "3", "-b", "2", "-o", "p.png", "--profile", "exact"}));
  const Finished same = flux2({"verify", "p-01.png", "p-02.png"});
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_EQ(same.out, "p-01.png: identical\np-02.png: identical\n");

  // A single changed pixel is found; --tolerance accepts it.
  Image changed = picture("p-01.png");
  uint8_t& sample = changed.at(40, 30)[1];
  sample = static_cast<uint8_t>(sample > 128 ? sample - 9 : sample + 9);
  save_image(folder_ / "changed.png", encode_png(changed, read_metadata(folder_ / "p-01.png")));
  const Finished differs = flux2({"verify", "changed.png", "--json"});
  EXPECT_EQ(differs.status, 10);
  const Json result = parse_json(differs.out);
  EXPECT_EQ(result["max"], 9);
  EXPECT_NEAR(result["mean"].get<double>(), 9.0 / (128 * 128 * 3), 1e-9);
  EXPECT_NEAR(result["psnr"].get<double>(), 10 * std::log10(255.0 * 255 * 128 * 128 * 3 / 81), 1e-6);
  EXPECT_THAT(flux2({"verify", "changed.png"}).out, HasSubstr("differs (largest difference 9"));
  EXPECT_EQ(flux2({"verify", "changed.png", "--tolerance", "8"}).status, 10);
  const Finished tolerated = flux2({"verify", "changed.png", "--tolerance", "9"});
  EXPECT_EQ(tolerated.status, 0);
  EXPECT_THAT(tolerated.out, HasSubstr("within tolerance"));

  save_image(folder_ / "cropped.png", encode_png(crop(changed, 0, 0, 64, 64), read_metadata(folder_ / "p-01.png")));
  EXPECT_THAT(flux2({"verify", "cropped.png"}).err, HasSubstr("resized or cropped"));
  expect_made(generate({"a cat", "--private", "-o", "private.png"}));
  EXPECT_THAT(flux2({"verify", "private.png"}).err, HasSubstr("--private"));
}

TEST_F(CliTools, VerifyFindsTheReferencesOfAnEdit) {
  expect_made(generate({"a red circle", "-S", "3", "-o", "in/photo.png"}));
  expect_made(flux2({"edit", "-i", "in/photo.png", "make it blue", "-S", "4", "-s", "2", "-o", "edited.png"}));
  const Finished missing = flux2({"verify", "edited.png"});
  EXPECT_EQ(missing.status, 3);
  EXPECT_THAT(missing.err, HasSubstr("photo.png"));
  EXPECT_THAT(missing.err, HasSubstr("-i"));
  EXPECT_EQ(flux2({"verify", "edited.png", "-i", "in/photo.png"}).out, "edited.png: identical\n");
  fs::copy(folder_ / "in/photo.png", folder_ / "photo.png");
  EXPECT_EQ(flux2({"verify", "edited.png"}).out, "edited.png: identical\n");
}

TEST_F(CliTools, VerifyFindsTheMaskOfADetailPass) {
  Image mask(64, 64, 1);
  for (int y = 8; y < 24; ++y) std::fill_n(mask.at(8, y), 16, uint8_t{255});
  save_image(folder_ / "mask.png", encode_png(mask));
  expect_made(flux2({"generate", "a red circle", "-S", "3", "-s", "1", "--size", "64", "--detail-mask", "mask.png",
                     "--detail-box", "40,40,16,16", "--detail-strength", "1", "-o", "d.png"}));
  EXPECT_EQ(flux2({"verify", "d.png"}).out, "d.png: identical\n");
  fs::rename(folder_ / "mask.png", folder_ / "renamed.png");
  const Finished missing = flux2({"verify", "d.png"});
  EXPECT_EQ(missing.status, 3);
  EXPECT_THAT(missing.err, HasSubstr("detail mask mask.png"));
  EXPECT_THAT(missing.err, HasSubstr("--detail-mask FILE"));
  EXPECT_EQ(flux2({"verify", "d.png", "--detail-mask", "renamed.png"}).out, "d.png: identical\n");
}

TEST_F(CliTools, APlanCountsTheExtraPassesOfEveryImage) {
  const Finished plan = flux2({"plan", "--json", "a cat", "--size", "64", "-s", "4", "-b", "3", "--cfg", "1", "--detail-box",
                               "0,0,32,32", "--detail-strength", "1"});
  ASSERT_EQ(plan.status, 0) << plan.err;
  constexpr int kImages = 3, kSteps = 4, kPasses = 2;
  EXPECT_EQ(parse_json(plan.out)["requests"][0]["plan"]["transformer_passes"], kImages * kSteps * kPasses);
}

// An adapter for the bundled model that changes what it draws.
void write_adapter(const fs::path& path, const std::map<std::string, std::string>& metadata = {}) {
  const auto weights = open_weights(pico("flux-2-pico.safetensors"));
  const Shape shape = weights->find("single_blocks.0.linear2.weight")->shape;
  constexpr int64_t kRank = 2;
  const auto values = [](int64_t count, float scale) {
    std::vector<float> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(scale * std::sin(static_cast<float>(i * 37 % 101)));
    return list;
  };
  const auto down = values(kRank * shape[1], 0.2f), up = values(shape[0] * kRank, 0.2f);
  save_tensors(
      path,
      {{"diffusion_model.single_blocks.0.linear2.lora_A.weight", Tensor::host_copy(down.data(), DType::F32, {kRank, shape[1]})},
       {"diffusion_model.single_blocks.0.linear2.lora_B.weight", Tensor::host_copy(up.data(), DType::F32, {shape[0], kRank})}},
      metadata);
}

// The references of such an adapter are seen at time 0.
TEST_F(CliTools, VerifyTreatsReferencesAsTheAdapterWasTrained) {
  write_adapter(folder_ / "plain.safetensors");
  write_adapter(folder_ / "zero.safetensors", {{"ss_flux2_references", "zero_cond_t"}});
  save_image(folder_ / "photo.png", encode_png(Image(64, 64, 3)));
  for (const std::string name : {"plain", "zero"})
    expect_made(flux2(
        {"edit", "-i", "photo.png", "make it blue", "-S", "4", "-s", "1", "--lora", name + ".safetensors", "-o", name + ".png"}));
  ASSERT_NE(picture("zero.png"), picture("plain.png"));
  EXPECT_EQ(flux2({"verify", "zero.png", "--lora", "zero.safetensors"}).out, "zero.png: identical\n");
}

TEST_F(CliTools, AdaptersAreAnAxisAndPartOfTheRecord) {
  write_adapter(folder_ / "ink.safetensors");
  expect_made(flux2({"grid", "a red circle", "--x", "lora:ink.safetensors=0,1", "-s", "2", "-S", "3", "-o", "sheet.png"}));
  expect_made(generate({"a red circle", "-S", "3", "-o", "plain.png"}));
  EXPECT_LE(difference(picture("sheet-01.png"), picture("plain.png")).max, 1);  // strength 0 changes nothing
  EXPECT_GT(difference(picture("sheet-02.png"), picture("plain.png")).mean, 0.5);
  EXPECT_TRUE(shows(picture("sheet.png"), "ink 1"));
  const Json lora = settings_of("sheet-02.png")["loras"][0];
  EXPECT_EQ(lora["name"], "ink");
  EXPECT_EQ(lora["weight"], 1);
  EXPECT_EQ(lora["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(flux2({"verify", "sheet-02.png"}).out, "sheet-02.png: identical\n") << "the adapter is beside it";
  EXPECT_THAT(flux2({"verify", "sheet-02.png", "--lora", "ink.safetensors:0.5"}).err, HasSubstr("other adapters"));
  fs::rename(folder_ / "ink.safetensors", folder_ / "home/ink.safetensors");
  const Finished without = flux2({"verify", "sheet-02.png"});
  EXPECT_EQ(without.status, 3);
  EXPECT_THAT(without.err, HasSubstr("sheet-02.png was made with the adapter ink:1, which is neither beside it nor installed"));
  EXPECT_EQ(flux2({"generate", "--from", "sheet-02.png", "-o", "again.png"}).err, without.err);
  EXPECT_EQ(flux2({"verify", "sheet-02.png", "--lora", "home/ink.safetensors"}).out, "sheet-02.png: identical\n");
}

// The line of the progress output that reports loading.
size_t times_loaded(const Finished& finished) {
  size_t count = 0;
  for (size_t at = 0; (at = finished.err.find("\"name\":\"load\",\"step\":0", at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_F(CliTools, ChangingStrengthsDoesNotReloadTheModel) {
  write_adapter(folder_ / "ink.safetensors");
  const Finished grid = flux2({"grid", "a red circle", "--x", "lora:ink.safetensors=0,0.5,1", "-s", "2", "-S", "3", "-o",
                               "sheet.png", "--progress", "json"});
  expect_made(grid);
  EXPECT_EQ(times_loaded(grid), 1u) << grid.err;
  write("prompts.txt",
        "a red circle --o 1.png\n"
        "a red circle --lora ink.safetensors:0.5 --o 2.png\n"
        "a red circle <lora:ink> --o 3.png\n");
  fs::create_directories(folder_ / "home/models/loras");
  fs::copy(folder_ / "ink.safetensors", folder_ / "home/models/loras");
  const Finished lines = flux2({"generate", "--prompt-file", "prompts.txt", "-s", "2", "-S", "3", "--progress", "json"});
  expect_made(lines);
  EXPECT_EQ(times_loaded(lines), 1u);
  for (const char* n : {"1", "2", "3"})
    EXPECT_EQ(picture(std::string(n) + ".png"), picture("sheet-0" + std::string(n) + ".png")) << n;
  EXPECT_NE(picture("2.png"), picture("3.png"));
  EXPECT_FALSE(settings_of("1.png").contains("loras"));
  EXPECT_EQ(settings_of("2.png")["loras"][0]["weight"], 0.5);
  EXPECT_EQ(settings_of("3.png")["prompt"], "a red circle");

  const Finished merged = flux2({"generate", "--prompt-file", "prompts.txt", "-s", "2", "-S", "3", "--lora-mode", "merge"});
  expect_made(merged);
  EXPECT_THAT(merged.err, HasSubstr("lora_mode runtime"));
  EXPECT_LT(difference(picture("3.png"), picture("sheet-03.png")).mean, 0.2 * difference(picture("3.png"), picture("1.png")).mean)
      << "merged weights are rounded once more";
  EXPECT_EQ(picture("1.png"), picture("sheet-01.png"));

  write("wrong.txt", "a red circle --o first.png\na red circle --lora nowhere --o second.png\n");
  EXPECT_EQ(generate({"--prompt-file", "wrong.txt"}).status, 3);
  EXPECT_FALSE(exists("first.png")) << "what cannot be done is said before the first picture";
}

TEST_F(CliTools, FromRestoresAdapters) {
  write_adapter(folder_ / "ink.safetensors");
  expect_made(generate({"a red circle", "-S", "3", "--lora", "ink.safetensors:0.8:single_blocks", "-o", "a.png"}));
  expect_made(generate({"--from", "a.png", "-o", "again.png"}));
  EXPECT_EQ(picture("again.png"), picture("a.png"));
  EXPECT_EQ(settings_of("again.png")["loras"], settings_of("a.png")["loras"]);
  expect_made(generate({"--from", "a.png", "--lora", "ink.safetensors:0.1", "-o", "weaker.png"}));
  EXPECT_EQ(settings_of("weaker.png")["loras"][0]["weight"], 0.1);
  std::filesystem::remove(folder_ / "ink.safetensors");
  const Finished gone = generate({"--from", "a.png", "-o", "gone.png"});
  EXPECT_EQ(gone.status, 3);
  EXPECT_THAT(gone.err, HasSubstr("was made with the adapter ink:0.8, which is neither beside it nor installed"));
}

TEST_F(CliTools, AMergedModelDrawsWhatItsAdapterDraws) {
  write_adapter(folder_ / "ink.safetensors");
  expect_made(generate(
      {"a red circle", "-S", "3", "--lora", "ink.safetensors:0.8", "--save-merged", "merged.safetensors", "-o", "a.png"}));
  expect_made(generate({"a red circle", "-S", "3", "-m", pico(""), "--dit", "merged.safetensors", "-o", "b.png"}));
  expect_made(generate({"a red circle", "-S", "3", "-o", "plain.png"}));
  const double same = difference(picture("a.png"), picture("b.png")).mean;
  EXPECT_LT(same, 0.2 * difference(picture("a.png"), picture("plain.png")).mean) << "merged weights are rounded once more";
  const Finished dry =
      flux2({"generate", "--lora", "ink.safetensors:0.8", "--save-merged-model", "dry.safetensors", "--dry-run"});
  expect_made(dry);
  EXPECT_EQ(parse_json(dry.out)["adapters"][0]["strength"], 0.8);
  EXPECT_FALSE(exists("dry.safetensors"));
  const Finished grid = flux2({"grid", "a fox", "--x", "steps=1", "--lora", "ink.safetensors", "--save-merged", "g.safetensors"});
  EXPECT_EQ(grid.status, 2);
  EXPECT_THAT(grid.err, HasSubstr("--save-merged is an option of `flux2 generate`"));
  const Finished nothing = generate({"a red circle", "--save-merged", "none.safetensors"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("--lora"));
  const Finished averaged = flux2({"lora", "ema", "ink.safetensors", "ink.safetensors", "-o", "average.safetensors", "--json"});
  ASSERT_EQ(averaged.status, 0) << averaged.err;
  EXPECT_GT(parse_json(averaged.out)["weights"][1], 0.5);
}

TEST_F(CliTools, ConvertReportsTheEffectOnImages) {
  write("prompts.txt", "a red circle --s 2 --d 3\na blue star --s 2\n");
  const auto calibrated = [&](const std::string& quant, const std::string& out) {
    const Finished done = flux2(
        {"convert", pico(""), "--part", "transformer", "-o", out, "--quant", quant, "--calibrate", "prompts.txt", "--json"});
    EXPECT_EQ(done.status, 0) << done.err;
    return parse_json(done.out);
  };
  EXPECT_TRUE(calibrated("keep", "same.safetensors")["pictures"]["psnr"].is_null()) << "the same weights draw the same";
  const Json fine = calibrated("q8_0", "fine.gguf"), coarse = calibrated("nvfp4", "coarse.safetensors");
  ASSERT_EQ(fine["pictures"]["list"].size(), 2u);
  EXPECT_EQ(fine["pictures"]["list"][0]["seed"], 3);
  EXPECT_EQ(fine["pictures"]["list"][1]["prompt"], "a blue star");
  EXPECT_GT(fine["pictures"]["psnr"], 30);
  EXPECT_GT(coarse["pictures"]["psnr"], 12);
  EXPECT_LT(coarse["pictures"]["psnr"], fine["pictures"]["psnr"]);
  const Finished missing = flux2({"convert", pico(""), "-o", "x.gguf", "--calibrate", "nowhere.txt"});
  EXPECT_EQ(missing.status, 3);
  EXPECT_FALSE(exists("x.gguf")) << "said before anything is written";

  const Finished encoder =
      flux2({"convert", pico(""), "-o", "encoder", "--fp8-text-encoder", "--calibrate", "prompts.txt", "--json"});
  ASSERT_EQ(encoder.status, 0) << encoder.err;
  EXPECT_TRUE(exists("encoder/config.json"));
  EXPECT_GT(parse_json(encoder.out)["pictures"]["psnr"], 15);
}

TEST_F(CliTools, UpscaleEnlarges) {
  expect_made(generate({"a red circle", "-S", "3", "-o", "small.png"}));
  const Finished made = flux2({"upscale", "small.png", "-o", "large.png"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.out, "large.png\n");
  EXPECT_EQ(picture("large.png"), resize(picture("small.png"), 256, 256, ResizeFilter::Lanczos));
  EXPECT_EQ(settings_of("large.png")["prompt"], "a red circle");
  EXPECT_EQ(settings_of("large.png")["kind"], "upscale");
  expect_made(flux2({"upscale", "small.png", "large.png", "--scale", "1.5", "-o", "out/%d.png"}));
  EXPECT_EQ(picture("out/1.png").width, 192);
  EXPECT_EQ(picture("out/2.png").width, 384);
  EXPECT_EQ(flux2({"upscale"}).status, 2);
  EXPECT_EQ(flux2({"upscale", "small.png", "--scale", "9"}).status, 2);
  EXPECT_EQ(flux2({"upscale", "nowhere.png"}).status, 3);
  EXPECT_EQ(flux2({"upscale", "small.png", "--show", "nowhere", "-o", "unwritten.png"}).status, 2);
  EXPECT_FALSE(exists("unwritten.png"));
}

TEST_F(CliTools, UpscaleKeepsNamesInAFolder) {
  expect_made(generate({"a red circle", "-o", "small.png", "--steps", "1"}));
  write("photo {1}.ppm", "P6 2 2 255 aaabbbcccddd");
  const Finished made = flux2({"upscale", "small.png", "photo {1}.ppm", "-o", "out/"});
  EXPECT_EQ(made.out, "out/small.png\nout/00001-0.png\n") << made.err;
  EXPECT_EQ(flux2({"upscale", "small.png", "-o", "out", "--format", "jpg"}).out, "out/small.jpg\n");
  EXPECT_EQ(flux2({"upscale", "small.png", "-o", "out"}).out, "out/small-2.png\n") << "an existing file stays";
  const Finished json = flux2({"upscale", "-i", "small.png", "-o", "large.png", "--json"});
  EXPECT_EQ(parse_json(json.out)["images"], Json::parse(R"([{"path": "large.png", "width": 256, "height": 256}])")) << json.err;
}

TEST_F(CliTools, UpscaleCopiesForeignMetadata) {
  ImageMetadata foreign;
  foreign.text = {{"parameters", "a fox\nSteps: 4, Sampler: Euler, Seed: 7, Size: 8x8"}};
  save_image(folder_ / "foreign.png", encode_png(Image(8, 8, 3), foreign));
  expect_made(flux2({"upscale", "foreign.png", "-o", "kept.png"}));
  EXPECT_EQ(read_metadata(folder_ / "kept.png"), foreign);
  expect_made(flux2({"upscale", "foreign.png", "-o", "kept.jpg"}));
  EXPECT_EQ(read_metadata(folder_ / "kept.jpg").exif_comment, *foreign.find_text("parameters"));
  for (const std::vector<std::string>& without : {std::vector<std::string>{"--metadata", "none"}, {"--private"}}) {
    std::vector<std::string> words = {"upscale", "foreign.png", "-o", "bare.png"};
    words.insert(words.end(), without.begin(), without.end());
    expect_made(flux2(words));
    EXPECT_EQ(read_metadata(folder_ / "bare.png"), ImageMetadata{}) << without[0];
  }
}

// An option that the method does not read was ignored.
TEST_F(CliTools, UpscaleRefusesOptionsOfOtherMethods) {
  write("p.ppm", "P6 2 2 255 aaabbbcccddd");
  const Finished tiles = flux2({"upscale", "p.ppm", "--tile-size", "128", "-o", "x.png"});
  EXPECT_EQ(tiles.status, 2);
  EXPECT_EQ(tiles.err, "flux2: --tile-size belongs to --method esrgan or redraw\n");
  EXPECT_EQ(flux2({"upscale", "p.ppm", "-p", "a fox", "-o", "x.png"}).err, "flux2: --prompt belongs to --method redraw\n");
  EXPECT_EQ(flux2({"upscale", "p.ppm", "-s", "4", "-o", "x.png"}).err, "flux2: --steps belongs to --method redraw\n");
  EXPECT_EQ(flux2({"upscale", "p.ppm", "-m", "pico", "-o", "x.png"}).err, "flux2: --model belongs to --method redraw\n");
  EXPECT_FALSE(exists("x.png"));
}

TEST_F(CliTools, LoraNamesFilesThatAreNoAdapters) {
  expect_made(generate({"a red circle", "--steps", "1", "-o", "p.png"}));
  const Finished image = flux2({"lora", "info", "p.png"});
  EXPECT_EQ(image.status, 4);
  EXPECT_THAT(image.err, HasSubstr("p.png is an image, not an adapter"));
  const Finished vae = flux2({"lora", "info", pico("ae.safetensors")});
  EXPECT_EQ(vae.status, 4);
  EXPECT_THAT(vae.err, HasSubstr("autoencoder, not an adapter"));
  EXPECT_THAT(flux2({"lora"}).err, HasSubstr("missing action. Use one of: info"));
}

// generate -m pico worked, convert and lora did not know the name.
TEST_F(CliTools, TheBundledModelHasAName) {
  expect_made(flux2({"convert", "pico", "-o", "pico.gguf", "--quant", "q8_0"}));
  expect_made(flux2({"convert", "pico", "--part", "vae", "-o", "vae.safetensors"}));
  expect_made(flux2({"lora", "extract", "pico.gguf", "pico", "--rank", "1", "-o", "difference.safetensors"}));
  expect_made(flux2({"lora", "check", "difference.safetensors", "-m", "pico"}));
}

TEST_F(CliTools, ConvertRefusesUnknownEndings) {
  const Finished made = flux2({"convert", pico("flux-2-pico.safetensors"), "-o", "pico.bin"});
  EXPECT_EQ(made.status, 2);
  EXPECT_EQ(made.err, "flux2: pico.bin does not end in .gguf or .safetensors\n");
  EXPECT_FALSE(exists("pico.bin"));
}

TEST_F(CliTools, UpscaleEnlargesWithANetwork) {
  expect_made(generate({"a red circle", "-S", "3", "-o", "small.png"}));
  const UpscalerConfig config{.scale = 2, .blocks = 2, .width = 16, .growth = 8};
  test::write_random_upscaler(folder_ / "tiny.safetensors", config);
  const Finished shown = flux2({"inspect", "tiny.safetensors"});
  EXPECT_THAT(shown.out, HasSubstr("upscaler"));
  EXPECT_THAT(shown.out, HasSubstr("RRDBNet"));

  const std::vector<std::string> by_file = {"upscale", "small.png", "--upscaler", "tiny.safetensors", "--profile", "exact"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), by_file.begin(), by_file.end());
    return flux2(more);
  };
  const Finished made = with({"-o", "large.png", "--trace", "values.safetensors"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.out, "large.png\n");
  const Image small = picture("small.png"), large = picture("large.png");
  ASSERT_EQ(large.width, 2 * small.width);
  EXPECT_NE(large, resize(small, large.width, large.height));
  EXPECT_EQ(settings_of("large.png")["prompt"], "a red circle");
  EXPECT_EQ(settings_of("large.png")["kind"], "upscale");
  EXPECT_EQ(settings_of("large.png")["upscaler"], "tiny");
  const auto values = open_weights(folder_ / "values.safetensors")->open("picture").to_floats();
  ASSERT_EQ(values.size(), large.pixels.size());
  for (size_t i = 0; i < values.size() / 3; ++i)
    ASSERT_NEAR(std::clamp(values[i], 0.0f, 1.0f) * 255, large.pixels[3 * i], 0.51) << i;
  expect_made(with({"--tile-size", "64", "-o", "tiled.png"}));
  const Image tiled = picture("tiled.png");
  for (size_t i = 0; i < tiled.pixels.size(); ++i) ASSERT_NEAR(tiled.pixels[i], large.pixels[i], 1) << i;
  expect_made(with({"--scale", "1.5", "-o", "middle.png"}));
  EXPECT_EQ(picture("middle.png"), resize(large, small.width * 3 / 2, small.height * 3 / 2));

  const Finished nothing = flux2({"upscale", "small.png", "--method", "esrgan", "-o", "x.png"});
  EXPECT_EQ(nothing.status, 3);
  EXPECT_THAT(nothing.err, HasSubstr("models install realesrgan-x4plus"));
  EXPECT_EQ(flux2({"upscale", "small.png", "--method", "lanczos", "--upscaler", "tiny.safetensors"}).status, 2);
  EXPECT_EQ(flux2({"upscale", "small.png", "--upscaler", "small.png", "-o", "x.png"}).status == 0, false);
  expect_made(flux2({"models", "install", "tiny.safetensors"}));
  expect_made(flux2({"upscale", "small.png", "--method", "esrgan", "--profile", "exact", "-o", "again.png"}));
  EXPECT_EQ(picture("again.png"), large);
}

TEST_F(CliTools, ConvertReadsThePickleOfAnUpscalerAndNoOther) {
  const std::filesystem::path seeds = test::source_folder() / "tests/fuzz/corpus/torch_pickle";
  const Finished other = flux2({"convert", (seeds / "module.bin").string(), "-o", "x.safetensors", "--upscaler"});
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.err, HasSubstr("this is not an upscaler"));
  const Finished evil = flux2({"convert", (seeds / "evil.bin").string(), "-o", "x.safetensors", "--upscaler"});
  EXPECT_NE(evil.status, 0);
  EXPECT_THAT(evil.err, HasSubstr("it calls posix.system"));
  EXPECT_FALSE(exists("x.safetensors"));
  EXPECT_NE(flux2({"convert", (seeds / "module.bin").string(), "-o", "x.safetensors"}).status, 0);
  EXPECT_EQ(flux2({"convert", (seeds / "module.bin").string(), "-o", "x.gguf", "--upscaler"}).status, 2);

  const Finished made = flux2({"convert", (seeds / "upscaler.bin").string(), "-o", "tiny.safetensors", "--upscaler"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.out, "tiny.safetensors\n");
  EXPECT_EQ(detect_upscaler(*open_weights(folder_ / "tiny.safetensors")),
            (UpscalerConfig{.scale = 4, .blocks = 1, .width = 2, .growth = 1}));
}

// The model draws some texture even where the image is flat. A seam is a jump from one column to the next beyond the slope on
// both sides of it: less than one level on average over the rows.
TEST_F(CliTools, UpscaleRedrawsInTilesWithoutSeams) {
  Image small(160, 96, 3);
  for (int y = 0; y < small.height; ++y)
    for (int x = 0; x < small.width; ++x) {
      const std::array<uint8_t, 3> colour = y < 64 ? std::array<uint8_t, 3>{90, 140, 200} : std::array<uint8_t, 3>{60, 120, 40};
      std::copy(colour.begin(), colour.end(), small.at(x, y));
    }
  save_image(folder_ / "small.png", encode_png(small));
  expect_made(flux2({"upscale", "small.png", "--method", "redraw", "--tile-size", "128", "-p", "a blue sky over a green field",
                     "-S", "3", "-o", "large.png"}));
  const Image large = picture("large.png");
  ASSERT_EQ(large.width, 320);
  ASSERT_EQ(large.height, 192);
  EXPECT_NE(large, resize(small, 320, 192)) << "redrawn";
  // Tiles begin at 0, 96 and 192 and end 128 pixels later; neighbours share 32.
  double most = 0;
  for (int seam : {96, 128, 192, 224})
    for (int c = 0; c < 3; ++c) {
      const auto mean = [&](int x) {
        double sum = 0;
        for (int y = 16; y < 96; ++y) sum += large.at(x, y)[c];
        return sum / 80;
      };
      const double slope = ((mean(seam - 1) - mean(seam - 2)) + (mean(seam + 1) - mean(seam))) / 2;
      most = std::max(most, std::abs(mean(seam) - mean(seam - 1) - slope));
    }
  EXPECT_LT(most, 1.0);
  const Json settings = settings_of("large.png");
  EXPECT_EQ(settings["kind"], "upscale");
  EXPECT_EQ(settings["tile_size"], 128);
  EXPECT_EQ(settings["strength"], 0.3);
}

TEST_F(CliTools, UpscaleRedrawsWithThePictureAsReference) {
  expect_made(flux2({"generate", "a large red circle in the center on a blue background", "-S", "3", "-o", "original.png"}));
  const Image original = picture("original.png");
  save_image(folder_ / "small.png", encode_png(resize(original, 68, 64)));  // contains no settings
  expect_made(flux2({"upscale", "small.png", "--method", "redraw", "-p", "a large red circle in the center on a blue background",
                     "-S", "3", "-o", "large.png"}));
  const Image large = picture("large.png");
  ASSERT_EQ(large.width, 136);  // although the model's sizes are multiples of 16
  ASSERT_EQ(large.height, 128);
  const auto wanted = mean_colour(original), got = mean_colour(large);
  for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(got[c], wanted[c], 20) << c;
  EXPECT_NE(large, resize(picture("small.png"), 136, 128));
  const Json settings = settings_of("large.png");
  EXPECT_EQ(settings["kind"], "upscale");
  EXPECT_EQ(settings["references"][0]["name"], "small.png");
  EXPECT_EQ(settings["seed"], 3);
}

// The mark is written at the final size, since scaling destroys it.
TEST_F(CliTools, UpscaleWritesAWatermarkThatCanBeReadOrWarns) {
  Image grey(140, 132, 3), white(140, 132, 3);
  for (int y = 0; y < grey.height; ++y)
    for (int x = 0; x < 3 * grey.width; ++x) grey.at(0, y)[x] = static_cast<uint8_t>(90 + (x + y) / 8);
  std::fill(white.pixels.begin(), white.pixels.end(), uint8_t{255});
  save_image(folder_ / "grey.png", encode_png(grey));
  save_image(folder_ / "white.png", encode_png(white));
  const auto found = [&](const std::string& name) {
    return parse_json(flux2({"inspect", "--json", "--watermark", "flux", name}).out)["watermark"]["found"].get<bool>();
  };
  const std::string lost = "the watermark cannot be read";
  const Finished enlarged = flux2({"upscale", "grey.png", "--watermark", "flux", "-o", "large.png"});
  EXPECT_THAT(enlarged.err, Not(HasSubstr(lost)));
  EXPECT_TRUE(found("large.png"));
  EXPECT_THAT(flux2({"upscale", "white.png", "--watermark", "flux", "-o", "white-large.png"}).err, HasSubstr(lost));
  expect_made(flux2({"upscale", "grey.png", "-o", "plain.png"}));
  EXPECT_FALSE(found("plain.png"));

  const Finished drawn = flux2(
      {"upscale", "grey.png", "--method", "redraw", "-p", "a grey wall", "-S", "3", "--watermark", "flux", "-o", "drawn.png"});
  expect_made(drawn);
  EXPECT_NE(found("drawn.png"), drawn.err.find(lost) != std::string::npos) << drawn.err;
  EXPECT_EQ(settings_of("drawn.png")["watermark"], "flux");
}

}  // namespace
}  // namespace flux2::test
