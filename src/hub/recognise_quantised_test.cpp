// Header-only files for every published way to quantise a model: what is recognised, how it is stored, what it needs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/recognise.h"
#include "hub/test_models.h"

namespace flux2 {
namespace {

using namespace testing_models;
using ::testing::HasSubstr;

using Tensors = std::vector<Stripped>;

bool in_block(const Stripped& t) {
  return (t.name.find("blocks.") != std::string::npos || t.name.find("layers.") != std::string::npos) && t.shape.rank() == 2;
}

std::string beside(const Stripped& t, const std::string& name) { return t.name.substr(0, t.name.size() - 6) + name; }

Stripped text(const std::string& name, const std::string& json) {
  return {name, {static_cast<int64_t>(json.size())}, "U8", json};
}

// Quantises the matrices inside blocks for which `wanted` holds.
template <class Quantise>
Tensors quantised(Tensors tensors, const Quantise& quantise, int every = 1) {
  int seen = 0;
  for (size_t i = 0, count = tensors.size(); i < count; ++i) {
    if (!in_block(tensors[i]) || seen++ % every != 0) continue;
    Stripped t = tensors[i];
    quantise(t, tensors);
    tensors[i] = t;
  }
  return tensors;
}

void as_fp8(Stripped& t, Tensors& more) {
  t.dtype = "F8_E4M3";
  more.push_back({beside(t, "weight_scale"), {}, "F32"});
  more.push_back({beside(t, "input_scale"), {}, "F32"});
}
void as_scaled_fp8(Stripped& t, Tensors& more) {
  t.dtype = "F8_E4M3";
  more.push_back({beside(t, "scale_weight"), {1}, "F32"});
  more.push_back({beside(t, "scale_input"), {1}, "F32"});
}
void as_musubi(Stripped& t, Tensors& more) {
  t.dtype = "F8_E4M3";
  more.push_back({beside(t, "scale_weight"), {t.shape[0], t.shape[1] / 64, 1}, "BF16"});
}
void as_qwen_fp8(Stripped& t, Tensors& more) {
  t.dtype = "F8_E4M3";
  more.push_back({beside(t, "weight_scale_inv"), {(t.shape[0] + 127) / 128, (t.shape[1] + 127) / 128}, "BF16"});
}
void as_nvfp4(Stripped& t, Tensors& more) {
  more.push_back({beside(t, "weight_scale"), {(t.shape[0] + 127) / 128 * 128, (t.shape[1] / 16 + 3) / 4 * 4}, "F8_E4M3"});
  more.push_back({beside(t, "weight_scale_2"), {}, "F32"});
  more.push_back(text(beside(t, "comfy_quant"), R"({"format":"nvfp4"})"));
  t = {t.name, t.shape.with(1, t.shape[1] / 2), "U8"};
}
void as_nf4(Stripped& t, Tensors& more) {
  more.push_back({t.name + ".absmax", {t.shape.numel() / 64}, "F32"});
  more.push_back({t.name + ".quant_map", {16}, "F32"});
  more.push_back(
      text(t.name + ".quant_state.bitsandbytes__nf4",
           fmt::format(R"({{"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[{},{}]}})", t.shape[0], t.shape[1])));
  t = {t.name, {t.shape.numel() / 2, 1}, "U8"};
}
void as_int8(Stripped& t, Tensors& more) {
  t.dtype = "I8";
  more.push_back({beside(t, "weight_scale"), {t.shape[0], 1}, "F32"});
  more.push_back(text(beside(t, "comfy_quant"), R"({"format":"int8_tensorwise","convrot":true,"convrot_groupsize":256})"));
}

const struct {
  const char* name;
  Flux2Config config;
} kVariants[] = {{"klein 4B", klein_4b_config()}, {"klein 9B", klein_9b_config()}, {"dev", dev_config()}};

Recognition seen(const Tensors& tensors, const std::map<std::string, std::string>& metadata = {}) {
  return recognise(write_stripped(scratch_folder() / "file.safetensors", tensors, metadata));
}

TEST(RecogniseQuantised, EveryKindOfEveryVariant) {
  const struct {
    const char* storage;
    void (*quantise)(Stripped&, Tensors&);
  } kinds[] = {{"fp8", as_fp8},     {"fp8", as_scaled_fp8}, {"fp8", as_musubi},
               {"nvfp4", as_nvfp4}, {"nf4", as_nf4},        {"int8", as_int8}};
  for (const auto& variant : kVariants)
    for (const auto& p : kinds)
      for (const char* prefix : {"", "model.diffusion_model."}) {
        SCOPED_TRACE(fmt::format("{} {} \"{}\"", variant.name, p.storage, prefix));
        const Recognition r = seen(quantised(transformer_tensors(variant.config, prefix), p.quantise));
        const Component& c = required_part(r, ComponentKind::Transformer);
        EXPECT_EQ(c.variant, variant.name);
        EXPECT_EQ(c.storage, p.storage);
        EXPECT_TRUE(c.usable()) << c.problem;
      }
}

TEST(RecogniseQuantised, MixedFilesAreNamedByTheirMajority) {
  const auto nvfp4 = quantised(transformer_tensors(klein_4b_config()), as_nvfp4, 2);
  EXPECT_EQ(required_part(seen(nvfp4), ComponentKind::Transformer).storage, "bf16")
      << "half of the matrices, a quarter of their bytes";
  auto mixed = quantised(transformer_tensors(klein_4b_config()), as_fp8);
  for (Stripped& t : mixed)
    if (t.name == "single_blocks.0.linear2.weight") {
      Tensors more;
      as_nf4(t, more);
      mixed.insert(mixed.end(), more.begin(), more.end());
      break;
    }
  EXPECT_EQ(required_part(seen(mixed), ComponentKind::Transformer).storage, "fp8, mixed");
}

TEST(RecogniseQuantised, GgufTransformersWithAndWithoutMetadata) {
  for (const auto& variant : kVariants)
    for (const char* dtype : {"Q8_0", "Q4_K", "Q6_K", "IQ4_XS"})
      for (const bool metadata : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", variant.name, dtype, metadata));
        auto tensors = transformer_tensors(variant.config, metadata ? "" : "model.diffusion_model.");
        for (Stripped& t : tensors) t.dtype = in_block(t) ? dtype : t.shape.rank() == 1 ? "F32" : "BF16";
        const auto path =
            write_stripped_gguf(scratch_folder() / "flux.gguf", tensors,
                                metadata ? std::vector<GgufPair>{{"general.architecture", "flux"}, {"general.name", "klein base"}}
                                         : std::vector<GgufPair>{});
        const Recognition r = recognise(path);
        EXPECT_EQ(r.container, "GGUF");
        const Component& c = required_part(r, ComponentKind::Transformer);
        EXPECT_EQ(c.variant, variant.name);
        std::string lower = dtype;
        for (char& ch : lower) ch = static_cast<char>(std::tolower(ch));
        EXPECT_EQ(c.storage, lower);
        EXPECT_EQ(c.distilled.value_or(!metadata), !metadata);
      }
  auto odd = transformer_tensors(klein_4b_config());
  odd[0].dtype = "BF16";
  const auto path = write_stripped_gguf(scratch_folder() / "odd.gguf", odd);
  EXPECT_TRUE(required_part(recognise(path), ComponentKind::Transformer).usable());
}

// Names and shapes of a language model as llama.cpp's converter writes them.
Tensors ggml_language_model(int64_t width, int64_t layers, bool normed) {
  Tensors tensors = {{"token_embd.weight", {151936, width}, "Q6_K"}, {"output_norm.weight", {width}, "F32"}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    for (const char* name : {"attn_norm", "ffn_norm"}) tensors.push_back({p + name + ".weight", {width}, "F32"});
    if (normed)
      for (const char* name : {"attn_q_norm", "attn_k_norm"}) tensors.push_back({p + name + ".weight", {128}, "F32"});
    tensors.push_back({p + "attn_q.weight", {4096, width}, "Q4_K"});
    tensors.push_back({p + "attn_k.weight", {1024, width}, "Q4_K"});
    tensors.push_back({p + "attn_v.weight", {1024, width}, "Q6_K"});
    tensors.push_back({p + "attn_output.weight", {width, 4096}, "Q4_K"});
    tensors.push_back({p + "ffn_gate.weight", {9728, width}, "Q4_K"});
    tensors.push_back({p + "ffn_up.weight", {9728, width}, "Q4_K"});
    tensors.push_back({p + "ffn_down.weight", {width, 9728}, "Q4_K"});
  }
  return tensors;
}

Component gguf(const Tensors& tensors, const std::string& architecture) {
  const Recognition r =
      recognise(write_stripped_gguf(scratch_folder() / "model.gguf", tensors, {{"general.architecture", architecture}}));
  EXPECT_EQ(r.components.size(), 1u);
  return r.components.at(0);
}

TEST(RecogniseQuantised, LanguageModelsInGguf) {
  for (const auto& [width, name] : {std::pair<int64_t, const char*>{2560, "Qwen3-4B"}, {4096, "Qwen3-8B"}}) {
    const Component c = gguf(ggml_language_model(width, 36, true), "qwen3");
    EXPECT_EQ(c.variant, name);
    EXPECT_EQ(c.dialect, "GGUF");
    EXPECT_TRUE(c.usable()) << c.problem;
    EXPECT_EQ(c.storage, "q4_k, mixed");
  }
  EXPECT_EQ(gguf(ggml_language_model(5120, 40, false), "llama").family, "Mistral");
  EXPECT_EQ(gguf(ggml_language_model(2560, 36, true), "qwen3vl").family, "Qwen3-VL");
  auto qwen2 = ggml_language_model(3584, 28, false);
  qwen2.push_back({"blk.0.attn_q.bias", {4096}, "F32"});
  EXPECT_EQ(gguf(qwen2, "qwen2").family, "Qwen2");
  EXPECT_THAT(gguf({{"v.blk.0.attn_q.weight", {1024, 1024}, "F16"}}, "clip").problem, HasSubstr("vision part"));
  EXPECT_EQ(gguf({{"enc.blk.0.attn_q.weight", {4096, 4096}, "F16"}}, "t5encoder").family, "T5");
}

TEST(RecogniseQuantised, TextEncodersQuantisedInEveryWay) {
  for (const auto& [width, name] : {std::pair<int64_t, const char*>{2560, "Qwen3-4B"}, {4096, "Qwen3-8B"}})
    for (const auto quantise : {as_qwen_fp8, as_nvfp4, as_fp8}) {
      const Recognition r = seen(quantised(qwen3_tensors(width, 36), quantise));
      const Component& c = required_part(r, ComponentKind::TextEncoder);
      EXPECT_EQ(c.variant, name);
      EXPECT_TRUE(c.usable()) << c.problem;
    }
}

TEST(RecogniseQuantised, UnsupportedKindsAreNamed) {
  const auto refusal_of = [](const Tensors& tensors) {
    const Recognition r = recognise(write_stripped(scratch_folder() / "file.safetensors", tensors));
    return r.components.at(0).problem;
  };
  EXPECT_THAT(
      refusal_of({{"transformer_blocks.0.attn.to_q.qweight", {4, 4}, "U8"}, {"transformer_blocks.0.attn.to_q.wscales", {4, 4}}}),
      HasSubstr("Nunchaku"));
  EXPECT_THAT(
      refusal_of({{"model.layers.0.mlp.up_proj.qweight", {4, 4}, "U8"}, {"model.layers.0.mlp.up_proj.qzeros", {4, 4}, "U8"}}),
      HasSubstr("GPTQ or AWQ"));
  EXPECT_THAT(refusal_of({{"a.weight", {4, 4}, "U8"}, {"a.zero_point", {4}}}), HasSubstr("SDNQ"));
  EXPECT_THAT(refusal_of({{"a.weight._data", {4, 4}, "I8"}, {"a.weight._scale", {4}}}), HasSubstr("optimum-quanto"));
  auto unknown = transformer_tensors(klein_4b_config());
  for (Stripped& t : unknown)
    if (t.name == "single_blocks.3.linear1.weight") t.dtype = "U8";
  EXPECT_THAT(refusal_of(unknown), HasSubstr("quantised by an unknown scheme"));
}

}  // namespace
}  // namespace flux2
