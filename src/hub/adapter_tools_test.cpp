#include "hub/adapter_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hub/recognise.h"
#include "hub/test_models.h"
#include "tests/support/paths.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace testing_models;
using ::testing::HasSubstr;

const fs::path kTiny = test::golden_folder() / "tiny/flux-2-klein-tiny.safetensors";

NamedWeights tiny() { return {open_weights(kTiny), ModelPart::Transformer}; }

std::vector<float> noise(int64_t count, uint32_t seed, float spread = 1.0f) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 1;
  for (float& v : values) v = spread * (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
  return values;
}

Tensor matrix(int64_t rows, int64_t columns, uint32_t seed) {
  return Tensor::host_copy(noise(rows * columns, seed, 0.1f).data(), DType::F32, {rows, columns});
}

// A LoRA of rank 8 on three layers of the tiny model, one of them in pieces.
fs::path write_lora(const fs::path& folder) {
  const int64_t h = 256;
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto pair = [&](const std::string& module, int64_t out, int64_t in, uint32_t seed) {
    tensors.emplace_back("transformer." + module + ".lora_A.weight", matrix(8, in, seed));
    tensors.emplace_back("transformer." + module + ".lora_B.weight", matrix(out, 8, seed + 1));
  };
  pair("transformer_blocks.0.attn.to_k", h, h, 1);
  pair("single_transformer_blocks.0.attn.to_qkv_mlp_proj", 9 * h, h, 3);
  pair("norm_out.linear", 2 * h, h, 5);
  save_tensors(folder / "lora.safetensors", tensors);
  return folder / "lora.safetensors";
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i)
    error += std::pow(static_cast<double>(a[i]) - b[i], 2), norm += std::pow(static_cast<double>(b[i]), 2);
  return std::sqrt(error / norm);
}

const char* const kChanged[] = {"double_blocks.0.img_attn.qkv.weight", "single_blocks.0.linear1.weight",
                                "final_layer.adaLN_modulation.1.weight"};

std::vector<float> merged(const HostMatrix& w, const std::string& name, const AdapterUse& use) {
  ThreadPool threads(2);
  HostMatrix sum(w.rows, w.columns);
  MergedRows([&](int64_t row, float* out) { std::copy_n(w.row(row), w.columns, out); }, {w.rows, w.columns}, name, {use})
      .rows(0, w.rows, sum.values.data(), threads);
  return sum.values;
}

TEST(AdapterTools, ConvertedAdaptersHaveTheSameEffect) {
  const fs::path folder = scratch_folder(), lora = write_lora(folder);
  const NamedWeights base = tiny();
  const Flux2Config config = detect_flux2(base);
  const auto use = [&](const fs::path& path) { return AdapterUse{std::make_shared<Adapter>(read_adapter(path), config)}; };
  for (const auto& [dialect, key] : {std::pair{"kohya", "lora_unet_single_blocks_0_linear1.alpha"},
                                     {"peft", "transformer.transformer_blocks.0.attn.to_k.lora_B.weight"},
                                     {"bfl", "diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight"}}) {
    const fs::path out = folder / (std::string(dialect) + ".safetensors");
    convert_adapter(*use(lora).adapter, config, adapter_dialect_named(dialect), out);
    EXPECT_TRUE(open_weights(out)->find(key)) << key;
    EXPECT_EQ(open_weights(out)->metadata().at("ss_base_model_version"), "flux2");
    for (const char* name : kChanged) {
      const HostMatrix w = weight_values(base, name);
      const auto a = merged(w, name, use(lora)), b = merged(w, name, use(out));
      EXPECT_LE(distance(b, a), 1e-6) << dialect << " " << name;
    }
  }
}

// After splitting into queries, keys and values, all parts share the first matrix; joining them stores it once.
TEST(AdapterTools, SplittingKeepsTheRank) {
  const fs::path folder = scratch_folder(), lora = write_lora(folder);
  const Flux2Config config = detect_flux2(tiny());
  const auto convert = [&](const fs::path& from, const char* dialect) {
    const fs::path out = folder / (std::string("rank_") + dialect + ".safetensors");
    convert_adapter(Adapter(read_adapter(from), config), config, adapter_dialect_named(dialect), out);
    return out;
  };
  const fs::path fused = convert(lora, "bfl"), again = convert(convert(fused, "peft"), "kohya");
  const Shape before = open_weights(fused)->find("diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight")->shape;
  EXPECT_EQ(open_weights(again)->find("lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight")->shape, before);
}

TEST(AdapterTools, ExtractingReturnsWhatWasMerged) {
  const fs::path folder = scratch_folder(), lora = write_lora(folder);
  const NamedWeights base = tiny();
  const Flux2Config config = detect_flux2(base);
  ThreadPool threads(2);
  // In F32, so that rounding does not hide the rank.
  std::vector<std::pair<std::string, Tensor>> plain;
  for (const std::string& name : base.names()) {
    const std::vector<float> values = base.open(name).to_floats();
    plain.emplace_back(name, Tensor::host_copy(values.data(), DType::F32, base.shape(name)));
  }
  save_tensors(folder / "base.safetensors", plain, {{"modelspec.title", "Mine"}, {"modelspec.hash_sha256", "0x1"}});
  const NamedWeights before(open_weights(folder / "base.safetensors"), ModelPart::Transformer);
  const AdapterUse use{std::make_shared<Adapter>(read_adapter(lora), config), 0.5};
  merge_into_file(before, {use}, folder / "tuned.safetensors", threads, "base");
  const NamedWeights tuned(open_weights(folder / "tuned.safetensors"), ModelPart::Transformer);
  EXPECT_LE(extract_adapter(tuned, before, 8, AdapterDialect::Bfl, folder / "again.safetensors", threads), 1e-4);
  const AdapterUse again{std::make_shared<Adapter>(read_adapter(folder / "again.safetensors"), config)};
  EXPECT_EQ(again.adapter->changes().size(), 3u);
  for (const char* name : kChanged) {
    const HostMatrix w = weight_values(before, name), want = weight_values(tuned, name);
    EXPECT_NE(w.values, want.values);
    EXPECT_LE(distance(merged(w, name, again), want.values), 1e-5) << name;
  }
  EXPECT_GT(extract_adapter(tuned, before, 2, AdapterDialect::Bfl, folder / "small.safetensors", threads), 0.1)
      << "a lower rank loses";
  EXPECT_THAT(refusal([&] { extract_adapter(before, before, 8, AdapterDialect::Bfl, folder / "none.safetensors", threads); }),
              HasSubstr("the same"));
  const Recognition recognised = recognise(folder / "tuned.safetensors");
  const Component& merged = required_part(recognised, ComponentKind::Transformer);
  EXPECT_EQ(merged.storage, "f32");
  EXPECT_EQ(merged.training(), "base") << "what the base is";
  EXPECT_EQ(recognised.metadata.at("modelspec.title"), "Mine");
  EXPECT_FALSE(recognised.metadata.contains("modelspec.hash_sha256")) << "the weights are others now";
}

TEST(AdapterTools, NearestLowRankIsTheTruncatedSingularValueDecomposition) {
  // A = Σ σ u vᵀ with known orthogonal vectors: rows and columns of the identity, scaled.
  HostMatrix a(20, 12);
  for (int64_t i = 0; i < 12; ++i) a.row(i)[i] = static_cast<float>(12 - i);
  ThreadPool threads(1);
  const LowRankPair pair = nearest_low_rank(a, 3, threads);
  const HostMatrix back = product(pair.up, pair.down, threads);
  for (int64_t i = 0; i < 20; ++i)
    for (int64_t j = 0; j < 12; ++j)
      EXPECT_NEAR(back.row(i)[j], i == j && i < 3 ? 12.0f - static_cast<float>(i) : 0.0f, 2e-2) << i << " " << j;
}

TEST(AdapterTools, CheckCountsLayersAndFindsDamage) {
  const fs::path folder = scratch_folder(), lora = write_lora(folder);
  const Flux2Config config = detect_flux2(tiny());
  const AdapterReport good = check_adapter(Adapter(read_adapter(lora), config));
  EXPECT_TRUE(good.is_good());
  ASSERT_EQ(good.layers.size(), 3u);
  EXPECT_EQ(good.layers[0].rank, 8);
  EXPECT_GT(good.layers[0].norm, 0);
  std::vector<float> broken(8 * 256, 1.0f);
  broken[5] = NAN;
  save_tensors(folder / "broken.safetensors",
               {{"single_blocks.0.linear2.lora_A.weight", matrix(8, 1024, 1)},
                {"single_blocks.0.linear2.lora_B.weight", Tensor::host_copy(broken.data(), DType::F32, {256, 8})}});
  const AdapterReport report = check_adapter(Adapter(read_adapter(folder / "broken.safetensors"), config));
  EXPECT_FALSE(report.is_good());
  EXPECT_EQ(report.not_finite.size(), 1u);
}

}  // namespace
}  // namespace flux2
