#include "model/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include "base/error.h"
#include "base/pattern.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Tensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

constexpr int64_t kH = 128;
const Flux2Config kConfig{.hidden = kH, .double_blocks = 1, .single_blocks = 1, .text_width = 192};

fs::path scratch() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto folder = fs::path(::testing::TempDir()) / "flux2_adapters" / test->name();
  fs::create_directories(folder);
  return folder;
}

std::vector<float> noise(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 1;
  for (float& v : values) v = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f;
  return values;
}

Tensor matrix(int64_t rows, int64_t columns, uint32_t seed) {
  return Tensor::host_copy(noise(rows * columns, seed).data(), DType::F32, {rows, columns});
}
Tensor floats(const Shape& shape, std::vector<float> values) { return Tensor::host_copy(values.data(), DType::F32, shape); }
Tensor number(float v) { return floats({}, {v}); }
Tensor rows_of(const Tensor& t, int64_t begin, int64_t count) { return t.narrowed(0, begin, count); }

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

AdapterUse written(const Tensors& tensors, const Metadata& metadata = {}, const Flux2Config& config = kConfig) {
  const auto path = scratch() / "adapter.safetensors";
  save_tensors(path, tensors, metadata);
  return {std::make_shared<Adapter>(read_adapter(path), config)};
}

HostMatrix weight(int64_t rows, int64_t columns, uint32_t seed = 77) {
  HostMatrix w(rows, columns);
  w.values = noise(rows * columns, seed);
  return w;
}

ThreadPool& threads() {
  static ThreadPool pool(2);
  return pool;
}

std::vector<float> merged(const std::vector<AdapterUse>& uses, const std::string& name, const HostMatrix& w) {
  HostMatrix sum(w.rows, w.columns);
  const MergedRows all([&](int64_t row, float* out) { std::copy_n(w.row(row), w.columns, out); }, {w.rows, w.columns}, name,
                       uses);
  // In ranges whose ends lie inside pieces, halves and blocks.
  for (int64_t r = 0; r < w.rows; r += 37) all.rows(r, std::min(w.rows, r + 37), sum.row(r), threads());
  return sum.values;
}
std::vector<float> merged(const AdapterUse& use, const std::string& name, const HostMatrix& w) {
  return merged(std::vector{use}, name, w);
}

// One adapter for qkv, linear1, linear2 and the last modulation, as each tool would write it.
TEST(Adapters, EveryDialectGivesTheSameWeights) {
  const int64_t r = 4;
  const Tensor a_qkv = matrix(r, kH, 1), b_qkv = matrix(3 * kH, r, 2);
  const Tensor a_in = matrix(r, kH, 3), b_in = matrix(9 * kH, r, 4);
  const Tensor a_out = matrix(r, 4 * kH, 5), b_out = matrix(kH, r, 6);
  const Tensor a_last = matrix(r, kH, 7), b_last = matrix(2 * kH, r, 8);
  const float alpha = 2;  // half of the rank: the product is halved
  std::vector<float> swapped(b_last.data<float>() + kH * r, b_last.data<float>() + 2 * kH * r);
  swapped.insert(swapped.end(), b_last.data<float>(), b_last.data<float>() + kH * r);
  const Tensor b_swapped = floats({2 * kH, r}, swapped);
  const auto halved = [](const Tensor& t) {
    std::vector<float> v(t.data<float>(), t.data<float>() + t.numel());
    for (float& x : v) x *= 0.5f;
    return floats(t.shape(), v);
  };

  Tensors kohya, comfy, peft, default_named, onetrainer, lycoris, diffusers_old;
  const auto pair = [&](Tensors& to, const std::string& module, const Tensor& a, const Tensor& b, const char* down,
                        const char* up, bool with_alpha) {
    to.push_back({module + down, a});
    to.push_back({module + up, b});
    if (with_alpha) to.push_back({module + ".alpha", number(alpha)});
  };
  const auto bfl = [&](Tensors& to, const std::string& prefix, char dot, const char* down, const char* up, bool with_alpha) {
    const auto name = [&](std::string n) {
      for (char& c : n)
        if (c == '.') c = dot;
      return prefix + n;
    };
    const auto half = [&](const Tensor& t) { return with_alpha ? t : halved(t); };
    pair(to, name("double_blocks.0.img_attn.qkv"), a_qkv, half(b_qkv), down, up, with_alpha);
    pair(to, name("single_blocks.0.linear1"), a_in, half(b_in), down, up, with_alpha);
    pair(to, name("single_blocks.0.linear2"), a_out, half(b_out), down, up, with_alpha);
    pair(to, name("final_layer.adaLN_modulation.1"), a_last, half(b_last), down, up, with_alpha);
  };
  const auto split = [&](Tensors& to, const std::string& prefix, char dot, const char* down, const char* up, bool with_alpha) {
    const auto name = [&](std::string n) {
      for (char& c : n)
        if (c == '.') c = dot;
      return prefix + n;
    };
    const auto half = [&](const Tensor& t) { return with_alpha ? t : halved(t); };
    int part = 0;
    for (const char* p : {"to_q", "to_k", "to_v"})
      pair(to, name(std::string("transformer_blocks.0.attn.") + p), a_qkv, half(rows_of(b_qkv, kH * part++, kH)), down, up,
           with_alpha);
    pair(to, name("single_transformer_blocks.0.attn.to_qkv_mlp_proj"), a_in, half(b_in), down, up, with_alpha);
    pair(to, name("single_transformer_blocks.0.attn.to_out"), a_out, half(b_out), down, up, with_alpha);
    pair(to, name("norm_out.linear"), a_last, half(b_swapped), down, up, with_alpha);
  };
  bfl(kohya, "lora_unet_", '_', ".lora_down.weight", ".lora_up.weight", true);
  bfl(comfy, "diffusion_model.", '.', ".lora_A.weight", ".lora_B.weight", false);
  split(peft, "transformer.", '.', ".lora_A.weight", ".lora_B.weight", false);
  split(default_named, "", '.', ".lora_A.default.weight", ".lora_B.default.weight", false);
  split(lycoris, "lycoris_", '_', ".lora_down.weight", ".lora_up.weight", true);
  split(diffusers_old, "base_model.model.", '.', ".lora.down.weight", ".lora.up.weight", true);
  // OneTrainer's own pieces of fused layers, ranks of their own.
  for (int part = 0; part < 3; ++part)
    pair(onetrainer, fmt::format("transformer.double_blocks.0.img_attn.qkv.{}", part), a_qkv, rows_of(b_qkv, kH * part, kH),
         ".lora_down.weight", ".lora_up.weight", true);
  for (int part = 0; part < 4; ++part)
    pair(onetrainer, fmt::format("transformer.single_blocks.0.linear1.{}", part), a_in,
         rows_of(b_in, kH * part, part < 3 ? kH : 6 * kH), ".lora_down.weight", ".lora_up.weight", true);
  pair(onetrainer, "transformer.single_blocks.0.linear2", a_out, b_out, ".lora_down.weight", ".lora_up.weight", true);
  pair(onetrainer, "transformer.final_layer.adaLN_modulation.1", a_last, b_last, ".lora_down.weight", ".lora_up.weight", true);

  const std::map<std::string, Shape> layers = {{"double_blocks.0.img_attn.qkv.weight", {3 * kH, kH}},
                                               {"single_blocks.0.linear1.weight", {9 * kH, kH}},
                                               {"single_blocks.0.linear2.weight", {kH, 4 * kH}},
                                               {"final_layer.adaLN_modulation.1.weight", {2 * kH, kH}}};
  const Metadata with_metadata = {{"lora_adapter_metadata", R"({"transformer.r":4,"transformer.lora_alpha":4})"}};
  for (const auto& [name, shape] : layers) {
    const HostMatrix w = weight(shape[0], shape[1]);
    const auto want = merged(written(kohya), name, w);
    EXPECT_NE(want, w.values);
    EXPECT_EQ(merged(written(comfy), name, w), want) << name;
    EXPECT_EQ(merged(written(peft), name, w), want) << name;
    EXPECT_EQ(merged(written(peft, with_metadata), name, w), want) << name;
    EXPECT_EQ(merged(written(default_named), name, w), want) << name;
    EXPECT_EQ(merged(written(onetrainer), name, w), want) << name;
    EXPECT_EQ(merged(written(lycoris), name, w), want) << name;
    EXPECT_EQ(merged(written(diffusers_old), name, w), want) << name;
  }
}

TEST(Adapters, NamesAreFoundInEverySpelling) {
  const AdapterTargets targets({.hidden = 3072, .double_blocks = 5, .single_blocks = 20, .text_width = 7680});
  const auto at = [&](const char* module) { return targets.find(module); };
  EXPECT_EQ(at("lora_unet_double_blocks_3_img_mlp_0")->weight, "double_blocks.3.img_mlp.0.weight");
  EXPECT_EQ(at("diffusion_model.double_blocks.3.img_attn_qkv")->weight, "double_blocks.3.img_attn.qkv.weight");
  const AdapterTarget* k = at("transformer.transformer_blocks.3.attn.add_k_proj");
  EXPECT_EQ(k->weight, "double_blocks.3.txt_attn.qkv.weight");
  EXPECT_EQ(k->rows.begin, 3072);
  EXPECT_EQ(k->rows.end, 6144);
  EXPECT_EQ(at("lycoris_single_transformer_blocks_7_attn_to_out")->weight, "single_blocks.7.linear2.weight");
  const AdapterTarget* mlp = at("transformer.single_blocks.7.linear1.3");
  EXPECT_EQ(mlp->weight, "single_blocks.7.linear1.weight");
  EXPECT_EQ(mlp->rows.begin, 3 * 3072);
  EXPECT_EQ(mlp->rows.end, 9 * 3072);
  const AdapterTarget* last = at("base_model.model.norm_out.linear");
  EXPECT_EQ(last->weight, "final_layer.adaLN_modulation.1.weight");
  EXPECT_TRUE(last->halves_exchanged);
  EXPECT_EQ(at("lora_transformer_x_embedder")->weight, "img_in.weight");
  EXPECT_EQ(at("transformer_blocks.0.attn.added_qkv")->weight, "double_blocks.0.txt_attn.qkv.weight");
  EXPECT_EQ(at("double_stream_modulation_txt.linear")->weight, "double_stream_modulation_txt.lin.weight");
  EXPECT_EQ(at("double_blocks.5.img_mlp.0"), nullptr);
  EXPECT_EQ(at("vector_in.in_layer"), nullptr);
}

AdapterModule only(const std::string& name, const Tensors& tensors, const Metadata& metadata = {}) {
  const auto path = scratch() / "one.safetensors";
  save_tensors(path, tensors, metadata);
  static std::vector<AdapterFile> kept;  // modules point into their file
  kept.push_back(read_adapter(path));
  EXPECT_EQ(kept.back().modules.size(), 1u);
  EXPECT_EQ(kept.back().modules[0].name, name);
  return kept.back().modules[0];
}

std::vector<float> change_of(const AdapterModule& m, const HostMatrix& w, double strength = 1) {
  HostMatrix sum(w.rows, w.columns);
  const auto read = [&](int64_t row, float* out) { std::copy_n(w.row(row), w.columns, out); };
  AdapterChange change(m);
  change.look_at(read);
  change.add_rows(0, w.rows, read, w.columns, static_cast<float>(strength), sum.values.data());
  return sum.values;
}

TEST(Adapters, LokrIsAKroneckerProduct) {
  const Tensors full = {
      {"m.lokr_w1", floats({2, 2}, {1, 2, 3, 4})}, {"m.lokr_w2", floats({1, 3}, {0, 1, 2})}, {"m.alpha", number(1e10f)}};
  EXPECT_THAT(change_of(only("m", full), HostMatrix(2, 6)), ElementsAre(0, 1, 2, 0, 2, 4, 0, 3, 6, 0, 4, 8));
  // A factored second factor has a rank, and alpha counts.
  const Tensors factored = {{"m.lokr_w1", floats({2, 2}, {1, 2, 3, 4})},
                            {"m.lokr_w2_a", floats({1, 2}, {1, 1})},
                            {"m.lokr_w2_b", floats({2, 3}, {0, 1, 1, 0, 0, 1})},
                            {"m.alpha", number(4)}};
  EXPECT_THAT(change_of(only("m", factored), HostMatrix(2, 6)), ElementsAre(0, 2, 4, 0, 4, 8, 0, 6, 12, 0, 8, 16));
}

TEST(Adapters, LohaIsAProductOfTwoChanges) {
  const Tensors loha = {{"m.hada_w1_a", floats({2, 1}, {1, 2})},
                        {"m.hada_w1_b", floats({1, 2}, {3, 4})},
                        {"m.hada_w2_a", floats({2, 1}, {5, 6})},
                        {"m.hada_w2_b", floats({1, 2}, {7, 8})},
                        {"m.alpha", number(0.5f)}};
  EXPECT_THAT(change_of(only("m", loha), HostMatrix(2, 2)),
              ElementsAre(3 * 35 * 0.5f, 4 * 40 * 0.5f, 6 * 42 * 0.5f, 8 * 48 * 0.5f));
}

TEST(Adapters, DoraSetsTheLengthOfRowsOrColumns) {
  HostMatrix w(2, 2);
  w.values = {3, 4, 1, 2};
  const auto with = [&](const Tensor& magnitude, const char* key) {
    return only("m",
                {{"m.lora_A.weight", floats({1, 2}, {0, -4})}, {"m.lora_B.weight", floats({2, 1}, {1, 0})}, {key, magnitude}});
  };
  const auto rows = change_of(with(floats({2}, {10, 5}), "m.dora_scale"), w);
  EXPECT_NEAR(w.values[0] + rows[0], 10, 1e-5);
  EXPECT_NEAR(w.values[1] + rows[1], 0, 1e-5);
  EXPECT_NEAR(w.values[2] + rows[2], 2.2360680, 1e-5);
  EXPECT_NEAR(w.values[3] + rows[3], 4.4721360, 1e-5);
  EXPECT_EQ(change_of(with(floats({2, 1}, {10, 5}), "m.lora_magnitude_vector.default.weight"), w), rows);
  // Columns of V = [[3, 0], [1, 2]] have the lengths √10 and 2.
  const auto columns = change_of(with(floats({1, 2}, {10, 4}), "m.dora_scale"), w);
  EXPECT_NEAR(w.values[0] + columns[0], 30 / std::sqrt(10.0), 1e-4);
  EXPECT_NEAR(w.values[3] + columns[3], 4, 1e-5);
  const auto half = change_of(with(floats({2}, {10, 5}), "m.dora_scale"), w, 0.5);
  EXPECT_NEAR(half[0], rows[0] / 2, 1e-6);
}

// A block of two rows turned by a quarter: with B = [[0, x], [0, 0]] and x = 1, Q is skew and R = (I + Q)(I − Q)⁻¹ a rotation by
// 90°.
TEST(Adapters, OftRotatesRows) {
  HostMatrix w(2, 2);
  w.values = {1, 2, 3, 4};
  const auto m = only("m", {{"m.oft_blocks", floats({1, 2, 2}, {0, 1, 0, 0})}});
  const auto change = change_of(m, w);
  // R = [[0, 1], [−1, 0]], Rᵀ W = [[−3, −4], [1, 2]].
  EXPECT_NEAR(w.values[0] + change[0], -3, 1e-6);
  EXPECT_NEAR(w.values[1] + change[1], -4, 1e-6);
  EXPECT_NEAR(w.values[2] + change[2], 1, 1e-6);
  EXPECT_NEAR(w.values[3] + change[3], 2, 1e-6);
  const auto limited = change_of(only("m", {{"m.oft_blocks", floats({1, 2, 2}, {0, 1, 0, 0})}, {"m.alpha", number(1e-6f)}}), w);
  EXPECT_NEAR(limited[0], 0, 1e-4) << "alpha limits the rotation";
}

TEST(Adapters, ScalesFromAlphaRankAndMetadata) {
  const Tensors pair = {{"transformer.x_embedder.lora_A.weight", matrix(4, 128, 1)},
                        {"transformer.x_embedder.lora_B.weight", matrix(kH, 4, 2)}};
  const auto scale = [&](const Tensors& more, const Metadata& metadata = {}) {
    Tensors all = pair;
    all.insert(all.end(), more.begin(), more.end());
    return only("transformer.x_embedder", all, metadata).scale();
  };
  EXPECT_EQ(scale({}), 1);
  EXPECT_EQ(scale({{"transformer.x_embedder.alpha", number(8)}}), 2);
  EXPECT_EQ(scale({{"transformer.x_embedder.scale", number(0.25f)}}), 0.25);
  EXPECT_EQ(scale({{"transformer.x_embedder.alpha", number(0)}}), 1);
  EXPECT_EQ(scale({}, {{"lora_adapter_metadata", R"({"transformer.lora_alpha": 8, "transformer.use_rslora": true})"}}), 4);
  EXPECT_EQ(
      scale({}, {{"lora_adapter_metadata", R"({"transformer.lora_alpha": 8, "transformer.alpha_pattern": {"x_embedder": 16}})"}}),
      4);
  for (const auto& [pattern, expected] : {std::pair{"x_.*er", patterns_available() ? 4.0 : 2.0}, {"embedder", 2.0}, {"(", 2.0}})
    EXPECT_EQ(
        scale({}, {{"lora_adapter_metadata",
                    fmt::format(R"({{"transformer.lora_alpha": 8, "transformer.alpha_pattern": {{"{}": 16}}}})", pattern)}}),
        expected)
        << pattern;
  EXPECT_THAT(refusal([&] { scale({{"transformer.x_embedder.alpha", number(NAN)}}); }), HasSubstr("cannot be used as a scale"));
}

// Patterns in an adapter's metadata come from outside. Backtracking would take longer than the age of the universe.
TEST(Adapters, PatternsOfAFileTakeLittleTime) {
  const std::string module = "transformer." + std::string(200, 'x');
  const Tensors pair = {{module + ".lora_A.weight", matrix(2, 128, 1)},
                        {module + ".lora_B.weight", matrix(kH, 2, 2)},
                        {"transformer.x_embedder.lora_A.weight", matrix(2, 128, 1)},
                        {"transformer.x_embedder.lora_B.weight", matrix(kH, 2, 2)}};
  const std::clock_t began = std::clock();  // of the processor: other programs do not count
  for (const char* pattern : {"(x+x+)+y", "(x|xx)*z", "(x*)*(x*)*(x*)*y"})
    written(pair, {{"lora_adapter_metadata",
                    fmt::format(R"({{"transformer.lora_alpha": 8, "transformer.alpha_pattern": {{"{}": 16}}}})", pattern)}});
  EXPECT_LT((std::clock() - began) / CLOCKS_PER_SEC, 20);
}

TEST(Adapters, ReportErrors) {
  const auto pair = [](const std::string& module, int64_t out, int64_t in) {
    return Tensors{{module + ".lora_A.weight", matrix(2, in, 1)}, {module + ".lora_B.weight", matrix(out, 2, 2)}};
  };
  EXPECT_THAT(refusal([&] { written(pair("diffusion_model.double_blocks.0.img_attn.qkv", 12288, 4096), {}, klein_4b_config()); }),
              HasSubstr("the adapter is for klein 9B (width 4096), the model is klein 4B (width 3072)"));
  EXPECT_THAT(refusal([&] { written(pair("blocks.0.ffn", 64, 64)); }), HasSubstr("changes no layer"));
  EXPECT_THAT(refusal([&] { written({{"img_in.lora_A.weight", matrix(2, 128, 1)}}); }), HasSubstr("its up is missing"));
  EXPECT_THAT(refusal([&] {
                merged(written({{"img_in.lora_A.weight", matrix(2, 128, 1)}, {"img_in.lora_B.weight", matrix(kH, 3, 1)}}),
                       "img_in.weight", weight(kH, 128));
              }),
              HasSubstr("does not fit"));
  EXPECT_THAT(refusal([&] {
                written({{"img_in.oft_R.weight", matrix(2, 2, 1)}});
              }),
              HasSubstr("PEFT's OFT, which is not supported"));
  EXPECT_THAT(refusal([&] { written({{"img_in.lora_mid.weight", matrix(2, 2, 1)}}); }), HasSubstr("Tucker"));
  auto mixed = pair("img_in", kH, 128);
  const auto more = pair("something.else", 4, 4);
  mixed.insert(mixed.end(), more.begin(), more.end());
  EXPECT_THAT(written(mixed).adapter->unmatched(), ElementsAre("something.else"));
}

// A shape is compared with the size of the file for known types alone; an unknown one must not become an allocation.
TEST(Adapters, TensorsOfUnknownTypesAreRefusedBeforeTheirShapeIsBelieved) {
  const StoredTensor huge{"img_in.dora_scale", "F31", std::nullopt, {int64_t{1} << 46}, {}};
  EXPECT_THAT(refusal([&] { matrix_of(huge); }), HasSubstr("is stored as F31, which is not supported"));
}

// Two adapters on one layer add up, whatever their order; DoRA counts from the original weight.
TEST(Adapters, SeveralAddUp) {
  const AdapterUse a = written({{"img_in.lora_A.weight", matrix(2, 128, 1)}, {"img_in.lora_B.weight", matrix(kH, 2, 2)}});
  AdapterUse b = written({{"img_in.diff", matrix(kH, 128, 9)}});
  b.strength = -0.5;
  const HostMatrix w = weight(kH, 128);
  const auto ab = merged(std::vector{a, b}, "img_in.weight", w), ba = merged(std::vector{b, a}, "img_in.weight", w);
  const auto only_a = merged(a, "img_in.weight", w), only_b = merged(b, "img_in.weight", w);
  for (size_t i = 0; i < ab.size(); ++i) {
    EXPECT_NEAR(ab[i], ba[i], 1e-5);
    EXPECT_NEAR(ab[i], only_a[i] + only_b[i] - w.values[i], 1e-5);
  }
}

TEST(Adapters, PatternsKnowEveryNaming) {
  const auto path = scratch() / "adapter.safetensors";
  save_tensors(path, {{"lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight", matrix(2, kH, 1)},
                      {"lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight", matrix(3 * kH, 2, 2)},
                      {"lora_unet_double_blocks_0_img_mlp_2.lora_down.weight", matrix(2, 3 * kH, 3)},
                      {"lora_unet_double_blocks_0_img_mlp_2.lora_up.weight", matrix(kH, 2, 4)},
                      {"lora_unet_single_blocks_0_linear1.lora_down.weight", matrix(2, kH, 5)},
                      {"lora_unet_single_blocks_0_linear1.lora_up.weight", matrix(9 * kH, 2, 6)}});
  const auto changed = [&](const std::string& layers) {
    std::vector<std::string> names;
    const Adapter adapter(read_adapter(path), kConfig, layers);
    for (const Adapter::Change& c : adapter.changes()) names.push_back(c.target.weight);
    return names;
  };
  const std::string qkv = "double_blocks.0.img_attn.qkv.weight", mlp = "double_blocks.0.img_mlp.2.weight",
                    single = "single_blocks.0.linear1.weight";
  EXPECT_THAT(changed(""), ElementsAre(qkv, mlp, single));
  EXPECT_THAT(changed("single_transformer_blocks.0"), ElementsAre(single));
  EXPECT_THAT(changed("!single_transformer_blocks"), ElementsAre(qkv, mlp));
  EXPECT_THAT(changed("attn.to_k"), ElementsAre(qkv));
  EXPECT_THAT(changed("lora_unet_single_blocks_0"), ElementsAre(single));
  EXPECT_THAT(changed("double_blocks&!mlp"), ElementsAre(qkv));
  EXPECT_THAT(changed("!mlp"), ElementsAre(qkv, single));  // not what diffusers calls to_qkv_mlp_proj
  EXPECT_THAT(refusal([&] { changed("mlp&!double"); }), HasSubstr("excludes all layers"));
}

}  // namespace
}  // namespace flux2
