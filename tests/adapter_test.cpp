// Adapters in the whole engine: applied at run time, merged, on a quantised model, and removed again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "hub/adapter_tools.h"
#include "tests/support/paths.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = test::golden_folder() / "tiny";

std::vector<float> noise(int64_t count, uint32_t seed, float spread) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 1;
  for (float& v : values) v = spread * (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
  return values;
}

Tensor matrix(int64_t rows, int64_t columns, uint32_t seed) {
  return Tensor::host_copy(noise(rows * columns, seed, 0.05f).data(), DType::F32, {rows, columns});
}

fs::path scratch() {
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("flux2_engine_adapters_{}", ::getpid());
  fs::create_directories(folder);
  return folder;
}

fs::path write_adapter(const std::string& kind) {
  const fs::path folder = scratch();
  const int64_t h = 256, r = 4;
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto pair = [&](const std::string& module, int64_t out, int64_t in, uint32_t seed) {
    tensors.emplace_back(module + ".lora_A.weight", matrix(r, in, seed));
    tensors.emplace_back(module + ".lora_B.weight", matrix(out, r, seed + 1));
  };
  if (kind == "lora") {
    pair("transformer.transformer_blocks.0.attn.to_q", h, h, 1);
    pair("transformer.transformer_blocks.0.attn.add_v_proj", h, h, 3);
    pair("transformer.transformer_blocks.0.ff.linear_in", 6 * h, h, 5);
    pair("transformer.single_transformer_blocks.0.attn.to_qkv_mlp_proj", 9 * h, h, 7);
    pair("transformer.single_transformer_blocks.0.attn.to_out", h, 4 * h, 9);
    pair("transformer.norm_out.linear", 2 * h, h, 11);
    pair("transformer.x_embedder", h, 128, 13);
  } else {
    tensors.emplace_back("lycoris_single_transformer_blocks_0_attn_to_out.lokr_w1", matrix(4, 4, 1));
    tensors.emplace_back("lycoris_single_transformer_blocks_0_attn_to_out.lokr_w2", matrix(h / 4, h, 2));
  }
  save_tensors(folder / (kind + ".safetensors"), tensors);
  return folder / (kind + ".safetensors");
}

// The tiny model's transformer with its weights in F32, so that merging does not round.
fs::path write_f32_transformer() {
  const fs::path path = scratch() / "f32.safetensors";
  const auto source = open_weights(kTiny / "flux-2-klein-tiny.safetensors");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : source->names()) {
    const std::vector<float> values = source->open(name).to_floats();
    tensors.emplace_back(name, Tensor::host_copy(values.data(), DType::F32, source->find(name)->shape));
  }
  save_tensors(path, tensors);
  return path;
}

const fs::path kTransformer = kTiny / "flux-2-klein-tiny.safetensors";

struct Loaded {
  Engine engine;
  std::unique_ptr<ModelSession> model;

  Loaded(const std::vector<AdapterChoice>& adapters, AdapterMode mode = AdapterMode::Runtime, Quant quant = Quant::None,
         const fs::path& transformer = kTransformer)
      : engine({.device = "cpu",
                .threads = 2,
                .profile = Profile::Exact,
                .quant = quant,
                .adapters = adapters,
                .adapter_mode = mode}) {
    ModelQuery query;
    query.model = kTiny.string();
    query.transformer = transformer;
    query.environment = [](const char*) -> const char* { return nullptr; };
    ModelFiles files = locate_model(query, {});
    files.defaults.text_length = 32;  // quick
    model = engine.open(files, {});
  }

  // A small image, before it is rounded to 8 bits.
  std::vector<float> picture() const {
    Request request;
    request.prompt = "a red fox";
    request.width = request.height = 64;
    request.steps = 2;
    request.seed = 3;
    std::vector<float> values;
    text_to_image(*model, request, {},
                  [&](const Picture& p) { values.assign(p.decoded.planes().values.begin(), p.decoded.planes().values.end()); });
    return values;
  }
  std::vector<float> with(const std::vector<AdapterChoice>& adapters) const {
    engine.use_adapters(*model, adapters);
    return picture();
  }
};

std::vector<float> picture(const std::vector<AdapterChoice>& adapters, AdapterMode mode = AdapterMode::Runtime,
                           Quant quant = Quant::None, const fs::path& transformer = kTransformer) {
  return Loaded(adapters, mode, quant, transformer).picture();
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i)
    error += std::pow(static_cast<double>(a[i]) - b[i], 2), norm += std::pow(static_cast<double>(b[i]), 2);
  return std::sqrt(error / norm);
}

TEST(EngineAdapters, MergedAndAtRunTimeAgree) {
  const fs::path lora = write_adapter("lora");
  const auto plain = picture({}), runtime = picture({{lora, 1.0}}), merged = picture({{lora, 1.0}}, AdapterMode::Merge);
  EXPECT_GT(distance(runtime, plain), 0.02) << "the adapter does something";
  EXPECT_LT(distance(runtime, merged), 5e-3) << "merged weights are rounded to bf16";
  const fs::path f32 = write_f32_transformer();
  EXPECT_LT(distance(picture({{lora, 1.0}}, AdapterMode::Runtime, Quant::None, f32),
                     picture({{lora, 1.0}}, AdapterMode::Merge, Quant::None, f32)),
            1e-4);
  EXPECT_EQ(picture({{lora, 0.0}}), plain);
  const auto twice = picture({{lora, 0.5}, {lora, 0.5}});
  EXPECT_LT(distance(twice, runtime), 1e-5) << "several add up";
  const auto quantised = picture({{lora, 1.0}}, AdapterMode::Runtime, Quant::Q8_0);
  EXPECT_LT(distance(quantised, runtime), 0.03) << "a quantised base takes adapters too";
}

// The same LoRA as five tools write it: diffusers, a PEFT folder, kohya and musubi, ComfyUI and ai-toolkit, OneTrainer.
std::vector<fs::path> in_five_styles() {
  const fs::path diffusers = write_adapter("lora"), folder = scratch();
  const auto source = open_weights(diffusers);
  const NamedWeights base(open_weights(kTransformer), ModelPart::Transformer);
  const Flux2Config config = detect_flux2(base);
  const Adapter adapter(read_adapter(diffusers), config);
  std::vector<fs::path> files = {diffusers};
  for (const char* dialect : {"kohya", "bfl"}) {
    files.push_back(folder / fmt::format("style_{}.safetensors", dialect));
    convert_adapter(adapter, config, adapter_dialect_named(dialect), files.back());
  }
  std::vector<std::pair<std::string, Tensor>> peft, onetrainer;
  for (const std::string& name : source->names()) {
    const std::string module = name.substr(12, name.find(".lora_") - 12);  // behind "transformer."
    const bool down = name.find(".lora_A") != std::string::npos;
    peft.emplace_back(fmt::format("base_model.model.{}.lora_{}.default.weight", module, down ? "A" : "B"), source->open(name));
    std::string underscored = "lora_transformer_" + module;
    std::replace(underscored.begin(), underscored.end(), '.', '_');
    onetrainer.emplace_back(underscored + (down ? ".lora_down.weight" : ".lora_up.weight"), source->open(name));
    const float alpha = 4;  // the rank
    if (down) onetrainer.emplace_back(underscored + ".alpha", Tensor::host_copy(&alpha, DType::F32, {}));
  }
  files.push_back(folder / "style_peft.safetensors");
  save_tensors(files.back(), peft);
  files.push_back(folder / "style_onetrainer.safetensors");
  save_tensors(files.back(), onetrainer);
  return files;
}

TEST(EngineAdapters, FiveStylesOnEveryBase) {
  const auto files = in_five_styles();
  ASSERT_EQ(files.size(), 5u);
  struct Base {
    const char* name;
    fs::path transformer;
    Quant quant;
    double merged;  // largest difference between merging and applying at run time; negative: not merged
  };
  // Merging into bf16 rounds each sum to within 2⁻⁹ of itself, which gives 2.0e-3 here. In f32 it is 1.6e-6.
  for (const Base& base : {Base{"f32", write_f32_transformer(), Quant::None, 1e-5}, Base{"bf16", kTransformer, Quant::None, 3e-3},
                           Base{"int8", kTransformer, Quant::Int8, -1}, Base{"q8_0", kTransformer, Quant::Q8_0, -1}}) {
    const Loaded loaded({}, AdapterMode::Runtime, base.quant, base.transformer);
    const auto plain = loaded.picture(), first = loaded.with({{files[0], 1.0}});
    EXPECT_GT(distance(first, plain), 0.02) << base.name;
    for (const fs::path& file : files) EXPECT_LT(distance(loaded.with({{file, 1.0}}), first), 1e-5) << base.name << " " << file;
    if (base.merged < 0) continue;
    for (const fs::path& file : {files.front(), files.back()})
      EXPECT_LT(distance(picture({{file, 1.0}}, AdapterMode::Merge, base.quant, base.transformer), first), base.merged)
          << base.name << " " << file;
  }
}

TEST(EngineAdapters, ChangesThatAreNotPairsAreMerged) {
  const fs::path lokr = write_adapter("lokr");
  const auto runtime = picture({{lokr, 1.0}}), merged = picture({{lokr, 1.0}}, AdapterMode::Merge);
  EXPECT_GT(distance(runtime, picture({})), 0.002);
  EXPECT_EQ(runtime, merged);
}

TEST(EngineAdapters, StrengthsChangeWithoutReloading) {
  const fs::path lora = write_adapter("lora");
  const Loaded loaded({});
  const auto network = loaded.model->model->models.transformer.get();
  EXPECT_EQ(loaded.with({{lora, 1.0}}), picture({{lora, 1.0}}));
  EXPECT_EQ(loaded.with({{lora, 0.5}}), picture({{lora, 0.5}}));
  EXPECT_EQ(loaded.with({{lora, 0.25}, {lora, 0.25}}), picture({{lora, 0.25}, {lora, 0.25}}));
  EXPECT_EQ(loaded.with({{lora, 0.0}}), picture({}));
  EXPECT_EQ(loaded.with({}), picture({}));
  EXPECT_EQ(loaded.model->models.transformer.get(), network) << "nothing was loaded again";
}

// The addresses of two layers' weights: one layer is changed by the LoKr of write_adapter, the other is not.
struct Weights {
  explicit Weights(const Flux2Transformer& n)
      : changed(n.single_blocks[0].out.weight.raw()), other(n.single_blocks[0].in.weight.raw()) {}
  const void *changed, *other;
};

TEST(EngineAdapters, OnlyWeightsThatChangeAreCopied) {
  const fs::path lora = write_adapter("lora"), lokr = write_adapter("lokr");
  const Loaded loaded({{lora, 1.0}});
  const auto weights = [&] { return Weights(*loaded.model->models.transformer.get()); };
  const Weights shared(*loaded.model->model->models.transformer.get());
  EXPECT_EQ(weights().changed, shared.changed) << "a LoRA changes no weight";
  EXPECT_EQ(loaded.model->adapters->merged_bytes(), 0);
  EXPECT_EQ(loaded.with({{lora, 1.0}, {lokr, 0.5}}), picture({{lora, 1.0}, {lokr, 0.5}}));
  const Weights merged = weights();
  EXPECT_NE(merged.changed, shared.changed);
  EXPECT_EQ(merged.other, shared.other);
  EXPECT_EQ(loaded.model->adapters->merged_bytes(), 2 * 256 * 4 * 256);
  EXPECT_EQ(loaded.with({{lora, 0.5}, {lokr, 0.5}}), picture({{lora, 0.5}, {lokr, 0.5}}));
  EXPECT_EQ(weights().changed, merged.changed) << "what is merged stayed as it was";
  EXPECT_EQ(loaded.with({}), picture({}));
  EXPECT_EQ(weights().changed, shared.changed);
  EXPECT_EQ(Weights(*loaded.model->model->models.transformer.get()).changed, shared.changed) << "the model never changed";
  const Loaded merging({{lora, 1.0}}, AdapterMode::Merge);
  EXPECT_EQ(merging.with({{lora, 0.5}}), picture({{lora, 0.5}}, AdapterMode::Merge));
}

TEST(EngineAdapters, CapturedWorkIsClearedWhenStrengthsChange) {
  const fs::path lora = write_adapter("lora");
  const Loaded loaded({{lora, 1.0}});
  auto& recorded = loaded.model->captured_work;
  recorded.emplace_back().model = loaded.model->models.transformer.get();
  recorded.emplace_back().model = loaded.model->models.vae;
  loaded.engine.use_adapters(*loaded.model, {{lora, 1.0}});
  EXPECT_EQ(recorded.size(), 2u) << "nothing changed";
  loaded.engine.use_adapters(*loaded.model, {{lora, 0.5}});
  ASSERT_EQ(recorded.size(), 1u);
  EXPECT_EQ(recorded.front().model, loaded.model->models.vae);
}

TEST(EngineAdapters, APatternChoosesLayers) {
  const fs::path lora = write_adapter("lora");
  const auto all = picture({{lora, 1.0}});
  EXPECT_LT(distance(picture({{lora, 1.0, "double_blocks"}, {lora, 1.0, "!double_blocks"}}), all), 1e-5);
  EXPECT_GT(distance(picture({{lora, 1.0, "double_blocks"}}), all), 1e-3);
  EXPECT_EQ(picture({{lora, 1.0, "."}}), all);
  EXPECT_THROW(picture({{lora, 1.0, "triple_blocks"}}), Error);
  EXPECT_THROW(picture({{lora, 1.0, "("}}), Error);
}

}  // namespace
}  // namespace flux2
