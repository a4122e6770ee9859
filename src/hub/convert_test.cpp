#include "hub/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "hub/recognise.h"
#include "hub/test_models.h"
#include "tests/support/paths.h"
#include "weights/quantised_values.h"
#include "weights/read_values.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace testing_models;
using ::testing::HasSubstr;

const fs::path kTiny = test::golden_folder() / "tiny";

NamedWeights transformer() { return {open_weights(kTiny / "flux-2-klein-tiny.safetensors"), ModelPart::Transformer}; }
NamedWeights text_encoder() { return {open_weights(kTiny / "text_encoder"), ModelPart::TextEncoder}; }

ConvertOptions options(const std::string& name, FileLayout layout, const std::string& type,
                       const std::vector<std::string>& rules = {}) {
  ConvertOptions o{.out = scratch_folder() / name, .choice = {.layout = layout, .type = quantisation_named(type)}, .threads = 2};
  for (const std::string& r : rules) o.choice.rules.push_back(quant_rule(r));
  return o;
}

std::vector<float> values(const NamedWeights& weights, const std::string& name) {
  std::vector<float> all;
  for (const StoredRows& piece : weights.pieces(name)) {
    const StoredTensor& t = *piece.tensor;
    const auto quantised = values_of(weights.source(), t);
    std::vector<float> row(static_cast<size_t>(t.shape.numel() / std::max<int64_t>(1, t.shape.rank() ? t.shape[0] : 1)));
    for (int64_t r = piece.rows.begin; r < piece.rows.end; ++r) {
      if (quantised) quantised->rows(r, r + 1, row.data());
      else read_row(t, r, row.data());
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  return all;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i)
    error += std::pow(static_cast<double>(a[i]) - b[i], 2), norm += std::pow(static_cast<double>(b[i]), 2);
  return std::sqrt(error / norm);
}

TEST(Convert, EveryTypeInGguf) {
  const NamedWeights before = transformer();
  for (const auto& [type, limit] : std::vector<std::pair<std::string, double>>{{"q8_0", 0.01},
                                                                               {"q6_k", 0.03},
                                                                               {"q5_k", 0.05},
                                                                               {"q5_0", 0.06},
                                                                               {"q4_k", 0.1},
                                                                               {"iq4_xs", 0.1},
                                                                               {"q4_0", 0.12},
                                                                               {"q3_k", 0.2},
                                                                               {"q2_k", 0.4},
                                                                               {"f16", 0.001},
                                                                               {"bf16", 1e-9}}) {
    SCOPED_TRACE(type);
    const ConvertOptions o = options("x.gguf", FileLayout::Gguf, type);
    const ConvertReport report = convert_model(before, o);
    EXPECT_EQ(report.bytes, fs::file_size(o.out));
    EXPECT_LE(report.total_error, limit);
    const NamedWeights after(open_weights(o.out), ModelPart::Transformer);
    ASSERT_EQ(after.names(), before.names());
    for (const std::string& name : before.names()) {
      ASSERT_EQ(after.shape(name), before.shape(name)) << name;
      EXPECT_LE(distance(values(after, name), values(before, name)), limit * 1.3) << name;
    }
    const Recognition recognised = recognise(o.out);
    const Component& c = required_part(recognised, ComponentKind::Transformer);
    EXPECT_EQ(c.storage, type);
    EXPECT_EQ(after.dtype("img_in.weight"), type == "f16" ? DType::F16 : DType::BF16) << "layers outside the blocks stay";
    EXPECT_EQ(after.dtype("double_blocks.0.img_attn.norm.query_norm.scale"), DType::F32);
  }
}

TEST(Convert, DiffusersAndBackGivesTheSameFile) {
  const ConvertOptions there = options("diffusers.safetensors", FileLayout::Diffusers, "keep");
  const ConvertReport report = convert_model(transformer(), there);
  EXPECT_TRUE(report.changed.empty());
  const NamedWeights split(open_weights(there.out), ModelPart::Transformer);
  EXPECT_EQ(split.dialect(), Dialect::Diffusers);
  ConvertOptions back{.out = there.out.parent_path() / "bfl.safetensors"};
  convert_model(split, back);
  const NamedWeights joined(open_weights(back.out), ModelPart::Transformer), before = transformer();
  EXPECT_EQ(joined.dialect(), Dialect::Canonical);
  for (const std::string& name : before.names()) EXPECT_EQ(values(joined, name), values(before, name)) << name;
}

TEST(Convert, QuantisedWithTheirScales) {
  const NamedWeights before = transformer();
  for (const auto& [type, limit] : {std::pair<std::string, double>{"fp8", 0.035}, {"int8", 0.01}, {"nvfp4", 0.12}})
    for (const FileLayout layout : {FileLayout::Bfl, FileLayout::Comfy, FileLayout::Diffusers}) {
      const ConvertOptions o = options("x.safetensors", layout, type);
      const ConvertReport report = convert_model(before, o);
      EXPECT_LE(report.total_error, limit);
      const auto source = open_weights(o.out);
      const NamedWeights after(source, ModelPart::Transformer);
      for (const std::string& name : before.names())
        EXPECT_LE(distance(values(after, name), values(before, name)), limit * 1.3) << name;
      EXPECT_THAT(source->metadata().at("_quantization_metadata"), HasSubstr(type == "fp8"    ? "float8_e4m3fn"
                                                                             : type == "int8" ? "int8_tensorwise"
                                                                                              : "nvfp4"));
      EXPECT_EQ(required_part(recognise(o.out), ComponentKind::Transformer).storage, type);
      // Quantised weights can be read back and quantised again, as blocks.
      ConvertOptions blocks{.out = o.out.parent_path() / "blocks.gguf",
                            .choice = {.layout = FileLayout::Gguf, .type = quantisation_named("q8_0")}};
      EXPECT_LE(convert_model(after, blocks).total_error, 0.01);
    }
}

TEST(Convert, ReportMatchesTheFile) {
  const NamedWeights before = transformer();
  const ConvertOptions o = options("x.safetensors", FileLayout::Bfl, "nvfp4", {"txt_mlp=fp8_block"});
  const ConvertReport report = convert_model(before, o);
  const auto source = open_weights(o.out);
  const NamedWeights after(source, ModelPart::Transformer);
  for (const ConvertedTensor& t : report.changed)
    EXPECT_NEAR(distance(values(after, t.name), values(before, t.name)), t.error, 1e-6);
  EXPECT_GT(report.changed.size(), 5u);
  EXPECT_EQ(after.shape("double_blocks.0.img_attn.qkv.weight"), (Shape{768, 256}));
}

// Like Qwen's own FP8 files: scales for 128 × 128 blocks, tensors outside the layers unchanged, and a config.json.
TEST(Convert, Fp8TextEncoderMatchesQwensLayout) {
  const NamedWeights before = text_encoder();
  ConvertOptions o = options("encoder", FileLayout::Diffusers, "fp8_block");
  o.as_folder = true;
  const ConvertReport report = convert_model(before, o);
  EXPECT_LE(report.total_error, 0.035);
  const Json config = read_json(o.out / "config.json");
  EXPECT_EQ(config["quantization_config"]["weight_block_size"], (Json{128, 128}));
  EXPECT_EQ(config["num_hidden_layers"], 28);
  const NamedWeights after(open_weights(o.out), ModelPart::TextEncoder);
  EXPECT_EQ(after.names(), before.names());
  for (const ConvertedTensor& t : report.changed)
    EXPECT_NEAR(distance(values(after, t.name), values(before, t.name)), t.error, 1e-6);
  EXPECT_EQ(values(after, "model.embed_tokens.weight"), values(before, "model.embed_tokens.weight"));
  EXPECT_EQ(required_part(recognise(o.out), ComponentKind::TextEncoder).storage, "fp8");
}

TEST(Convert, AFolderInSeveralFiles) {
  const NamedWeights before = transformer();
  ConvertOptions o = options("transformer", FileLayout::Diffusers, "keep");
  o.as_folder = true;
  o.choice.shard_bytes = 1 << 20;
  convert_model(before, o);
  const Json index = read_json(o.out / "diffusion_pytorch_model.safetensors.index.json");
  EXPECT_TRUE(index["weight_map"].contains("transformer_blocks.0.attn.to_q.weight"));
  EXPECT_EQ(read_json(o.out / "config.json")["_class_name"], "Flux2Transformer2DModel");
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(o.out)) files += entry.path().extension() == ".safetensors";
  EXPECT_GT(files, 2u);
  const NamedWeights after(open_weights(o.out), ModelPart::Transformer);
  EXPECT_EQ(after.names(), before.names());
  for (const std::string& name : before.names()) EXPECT_EQ(values(after, name), values(before, name)) << name;

  // A run that was stopped in the third file continues there; no file gets its name before all are complete.
  ConvertOptions again = o;
  again.out = o.out.parent_path() / "again";
  again.progress = [&](uint64_t done, uint64_t total, const std::string&) { return done < total / 2; };
  EXPECT_THAT(refusal([&] { convert_model(before, again); }), HasSubstr("stopped"));
  const std::string first = fmt::format("diffusion_pytorch_model-00001-of-{:05}.safetensors", files);
  EXPECT_FALSE(fs::exists(again.out / first));
  again.progress = {};
  EXPECT_GT(convert_model(before, again).resumed_from, fs::file_size(o.out / first));
  for (const auto& entry : fs::directory_iterator(o.out))
    EXPECT_EQ(read_text_file(again.out / entry.path().filename()), read_text_file(entry.path())) << entry.path();
}

// A folder with one file and an index is read from the file.
TEST(Convert, AFolderKeepsNothingOfAnOlderModel) {
  const NamedWeights before = transformer();
  ConvertOptions o = options("transformer", FileLayout::Diffusers, "keep");
  o.as_folder = true;
  const auto contents = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(o.out)) names.insert(entry.path().filename().string());
    return names;
  };
  convert_model(before, o);
  const std::set<std::string> single = contents();
  EXPECT_THAT(single, ::testing::ElementsAre("config.json", "diffusion_pytorch_model.safetensors"));
  write_file(o.out / "other.safetensors", "x");
  o.choice.shard_bytes = 1 << 20;
  o.choice.type = quantisation_named("fp8");
  convert_model(before, o);
  EXPECT_FALSE(fs::exists(o.out / "diffusion_pytorch_model.safetensors"));
  EXPECT_TRUE(fs::exists(o.out / "other.safetensors")) << "it has a name of its own";
  fs::remove(o.out / "other.safetensors");
  EXPECT_EQ(required_part(recognise(o.out), ComponentKind::Transformer).storage, "fp8");

  // Nor does a part of another kind, whose files have the same names, replace it.
  ConvertOptions other{.out = o.out, .threads = 2};
  other.choice.layout = FileLayout::Diffusers;
  other.as_folder = true;
  const NamedWeights vae(open_weights(kTiny / "ae.safetensors"), ModelPart::Autoencoder);
  const std::set<std::string> parts = contents();
  EXPECT_THAT(refusal([&] { convert_model(vae, other); }), HasSubstr("holds another part of a model"));
  EXPECT_EQ(contents(), parts);

  // The model that is converted is never deleted.
  const NamedWeights series(open_weights(o.out), ModelPart::Transformer);
  o.choice.shard_bytes = 0;
  const std::set<std::string> shards = contents();
  EXPECT_THAT(refusal([&] { convert_model(series, o); }), HasSubstr("holds the model that is converted"));
  EXPECT_EQ(contents(), shards);
  convert_model(before, o);
  EXPECT_EQ(contents(), single);
}

// The name of the result and its folder say nothing.
TEST(Convert, BaseModelsStayBaseModels) {
  const fs::path folder = scratch_folder(), source = folder / "klein-base-4b.safetensors";
  fs::copy_file(kTiny / "flux-2-klein-tiny.safetensors", source);
  const Component base = required_part(recognise(source), ComponentKind::Transformer);
  EXPECT_EQ(base.training(), "base");
  for (const char* name : {"x.safetensors", "x.gguf"}) {
    ConvertOptions o{.out = folder / name, .threads = 2};
    if (o.out.extension() == ".gguf") o.choice.layout = FileLayout::Gguf;
    o.choice.training = base.training();
    convert_model({open_weights(source), ModelPart::Transformer}, o);
    const Component made = required_part(recognise(o.out), ComponentKind::Transformer);
    EXPECT_EQ(made.training(), "base") << name;
    EXPECT_THAT(made.distilled_reason, HasSubstr("flux2.training"));
    // And so does what is made from that.
    ConvertOptions again{.out = folder / "again.safetensors", .choice = {.training = made.training()}, .threads = 2};
    convert_model({open_weights(o.out), ModelPart::Transformer}, again);
    EXPECT_EQ(required_part(recognise(again.out), ComponentKind::Transformer).training(), "base");
  }
}

TEST(Convert, TextEncodersUseTheNamesOfLanguageModels) {
  const NamedWeights before = text_encoder();
  const ConvertOptions o = options("qwen.gguf", FileLayout::Gguf, "q8_0");
  convert_model(before, o);
  const auto source = open_weights(o.out);
  EXPECT_TRUE(source->find("blk.3.attn_output.weight"));
  EXPECT_EQ(source->metadata().at("general.architecture"), "qwen3");
  EXPECT_EQ(source->metadata().at("qwen3.block_count"), "28");
  EXPECT_EQ(source->metadata().at("qwen3.attention.head_count_kv"), "2");
  const NamedWeights after(source, ModelPart::TextEncoder);
  EXPECT_EQ(after.names(), before.names());
  EXPECT_EQ(required_part(recognise(o.out), ComponentKind::TextEncoder).decoder->layers, 28);
}

TEST(Convert, RulesSelectTensorsByName) {
  const ConvertOptions o =
      options("x.gguf", FileLayout::Gguf, "q4_0", {"img_mlp=q6_k", "double_blocks=keep", "^final_layer=f16"});
  convert_model(transformer(), o);
  const NamedWeights after(open_weights(o.out), ModelPart::Transformer);
  EXPECT_EQ(after.dtype("double_blocks.0.img_mlp.0.weight"), DType::Q6_K);
  EXPECT_EQ(after.dtype("double_blocks.0.img_attn.qkv.weight"), DType::BF16);
  EXPECT_EQ(after.dtype("single_blocks.0.linear1.weight"), DType::Q4_0);
  EXPECT_EQ(after.dtype("final_layer.linear.weight"), DType::F16);
  EXPECT_THAT(refusal([] { quant_rule("img_mlp"); }), HasSubstr("REGEX=TYPE"));
  EXPECT_THAT(refusal([] { quant_rule("([=q4_0"); }), HasSubstr("regular expression"));
  EXPECT_THAT(refusal([] { quant_rule("a=q9"); }), HasSubstr("\"q9\" is not one of"));
  EXPECT_THAT(refusal([] { convert_model(transformer(), options("x.safetensors", FileLayout::Bfl, "q4_k")); }),
              HasSubstr("Q4_K cannot be stored in safetensors files"));
  EXPECT_THAT(refusal([] { convert_model(transformer(), options("x.gguf", FileLayout::Gguf, "fp8")); }),
              HasSubstr("cannot be stored in GGUF"));
}

// Rows of 96 have no blocks of 256; they fall back to blocks of 32.
TEST(Convert, BlocksThatDoNotFillRowsFallBack) {
  const ConvertOptions o = options("x.gguf", FileLayout::Gguf, "q4_k", {"txt_in=q4_k"});
  convert_model(transformer(), o);
  EXPECT_EQ(NamedWeights(open_weights(o.out), ModelPart::Transformer).dtype("txt_in.weight"), DType::Q8_0);
}

// The temporary file of a process that was killed while it wrote its notes.
TEST(Convert, RemovesTemporariesOfKilledRuns) {
  ConvertOptions o{.out = scratch_folder() / "series",
                   .as_folder = true,
                   .choice = {.layout = FileLayout::Diffusers, .shard_bytes = 1 << 20},
                   .threads = 2};
  const auto contents = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(o.out)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  };
  convert_model(transformer(), o);
  const std::vector<std::string> expected = contents();
  ASSERT_GT(expected.size(), 3u);
  for (const char* stale : {".config.json.a1b2c3.flux2-tmp", ".diffusion_pytorch_model.safetensors.index.json.a1b2c3.flux2-tmp"})
    write_file(o.out / stale, "{");
  for (const std::string& name : expected)
    if (name.ends_with(".safetensors")) write_file(o.out / (".." + name + ".partial.json.a1b2c3.flux2-tmp"), "{");
  convert_model(transformer(), o);
  EXPECT_EQ(contents(), expected);
}

TEST(Convert, StoppedRunResumesToTheSameFile) {
  const NamedWeights before = transformer();
  for (const auto& [name, layout, type] :
       {std::tuple{"x.gguf", FileLayout::Gguf, "q4_k"}, {"x.safetensors", FileLayout::Comfy, "fp8"}}) {
    ConvertOptions whole = options(name, layout, type);
    convert_model(before, whole);
    const std::string want = read_text_file(whole.out);
    for (const size_t stop : {1u, 5u, 17u}) {
      ConvertOptions o = options(name, layout, type);
      size_t written = 0;
      o.progress = [&](uint64_t, uint64_t, const std::string&) { return ++written != stop; };
      EXPECT_THAT(refusal([&] { convert_model(before, o); }), HasSubstr("stopped"));
      EXPECT_FALSE(fs::exists(o.out));
      o.progress = {};
      const ConvertReport report = convert_model(before, o);
      EXPECT_GT(report.resumed_from, 0u);
      EXPECT_EQ(read_text_file(o.out), want) << stop;
    }
  }
  EXPECT_THAT(refusal([&] { convert_model(before, {.out = kTiny / "flux-2-klein-tiny.safetensors"}); }),
              HasSubstr("overwrite itself"));
}

}  // namespace
}  // namespace flux2
