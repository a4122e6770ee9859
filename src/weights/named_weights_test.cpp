#include "weights/named_weights.h"

#include <gmock/gmock.h>

#include <cstring>
#include <ctime>
#include <numeric>

#include "tests/support/paths.h"
#include "weights/safetensors_writer.h"
#include "weights/test_files.h"

namespace flux2 {
namespace {

using namespace testing_files;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

std::filesystem::path tiny(const std::string& name) { return test::golden_folder() / "tiny" / name; }

NamedWeights named(const std::filesystem::path& path, ModelPart part) { return NamedWeights(open_weights(path), part); }

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

// Writes the weights in the diffusers layout, every name under `prefix`.
void write_diffusers(const NamedWeights& weights, const std::filesystem::path& path, const std::string& prefix = "") {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& name : weights.names()) {
    const Tensor t = weights.open(name);
    const int64_t row = t.bytes() / std::max<int64_t>(1, t.rank() == 0 ? 1 : t.dim(0));
    for (const DiffusersTensor& d : to_diffusers(weights.part(), name, t.shape())) {
      Tensor piece = Tensor::host_empty(t.dtype(), d.shape);
      auto* to = piece.data<std::byte>();
      for (const IndexRange& r : d.rows) {
        std::memcpy(to, t.data<std::byte>() + r.begin * row, static_cast<size_t>(r.size() * row));
        to += r.size() * row;
      }
      tensors.emplace_back(prefix + d.name, piece);
    }
  }
  save_tensors(path, tensors);
}

// A source of F32 [2] tensors with these names, values counting up.
std::shared_ptr<const WeightSource> source_of(const std::filesystem::path& path, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  float next = 0;
  for (const auto& name : names) {
    const float values[] = {next, next + 1};
    next += 2;
    tensors.emplace_back(name, Tensor::host_copy(values, DType::F32, {2}));
  }
  save_tensors(path, tensors);
  return open_weights(path);
}

TEST(NamedWeights, ResolvesEveryNameOfTheTinyModels) {
  const std::pair<const char*, ModelPart> files[] = {{"flux-2-klein-tiny.safetensors", ModelPart::Transformer},
                                                     {"flux2-dev-tiny.safetensors", ModelPart::Transformer},
                                                     {"ae.safetensors", ModelPart::Autoencoder},
                                                     {"text_encoder/model.safetensors", ModelPart::TextEncoder}};
  for (const auto& [file, part] : files) {
    const auto weights = named(tiny(file), part);
    EXPECT_EQ(weights.dialect(), Dialect::Canonical);
    EXPECT_EQ(weights.prefix(), "");
    EXPECT_THAT(weights.unknown(), IsEmpty());
    EXPECT_THAT(weights.names(), UnorderedElementsAreArray(weights.source().names()));
    for (const auto& name : weights.names()) {
      EXPECT_TRUE(weights.has(name));
      EXPECT_EQ(weights.shape(name), weights.source().find(name)->shape);
      EXPECT_EQ(weights.dtype(name), *weights.source().find(name)->dtype);
      EXPECT_EQ(weights.open(name).raw(), weights.source().find(name)->bytes.data());
    }
  }
}

TEST(NamedWeights, OtherPartsAreNotRecognised) {
  EXPECT_THAT(named(tiny("ae.safetensors"), ModelPart::Transformer).names(), IsEmpty());
  EXPECT_THAT(named(tiny("flux2-dev-tiny.safetensors"), ModelPart::TextEncoder).names(), IsEmpty());
  EXPECT_EQ(named(tiny("flux2-dev-tiny.safetensors"), ModelPart::Autoencoder).unknown().size(), 27u);
}

TEST(NamedWeights, DiffusersAndBackGivesTheSameBytes) {
  const std::tuple<const char*, ModelPart, const char*> cases[] = {
      {"flux-2-klein-tiny.safetensors", ModelPart::Transformer, ""},
      {"flux2-dev-tiny.safetensors", ModelPart::Transformer, "transformer."},
      {"ae.safetensors", ModelPart::Autoencoder, ""},
      {"ae.safetensors", ModelPart::Autoencoder, "vae."},
      {"text_encoder/model.safetensors", ModelPart::TextEncoder, "text_encoders.qwen3_4b.transformer."}};
  for (const auto& [file, part, prefix] : cases) {
    const auto path = scratch_folder() / "diffusers.safetensors";
    const auto original = named(tiny(file), part);
    write_diffusers(original, path, prefix);
    const auto copy = named(path, part);
    EXPECT_EQ(copy.dialect(), part == ModelPart::TextEncoder ? Dialect::Canonical : Dialect::Diffusers) << file;
    EXPECT_EQ(copy.prefix(), prefix);
    EXPECT_THAT(copy.unknown(), IsEmpty());
    ASSERT_EQ(copy.names(), original.names());
    for (const auto& name : original.names()) EXPECT_TRUE(same(copy.open(name), original.open(name))) << name;
  }
}

TEST(NamedWeights, TheDiffusersLayoutIsTheOneDiffusersWrites) {
  const auto path = scratch_folder() / "d.safetensors";
  write_diffusers(named(tiny("flux-2-klein-tiny.safetensors"), ModelPart::Transformer), path);
  const auto source = open_weights(path);
  const auto original = open_weights(tiny("flux-2-klein-tiny.safetensors"));
  ASSERT_NE(source->find("transformer_blocks.0.attn.add_k_proj.weight"), nullptr);
  EXPECT_EQ(source->find("transformer_blocks.0.attn.add_k_proj.weight")->shape, (Shape{256, 256}));
  EXPECT_TRUE(same(source->open("transformer_blocks.0.attn.to_v.weight"),
                   original->open("double_blocks.0.img_attn.qkv.weight", {.axis = 0, .rank = 2, .count = 3})));
  const Shard first{.axis = 0, .rank = 0, .count = 2}, second{.axis = 0, .rank = 1, .count = 2};
  EXPECT_TRUE(
      same(source->open("norm_out.linear.weight", first), original->open("final_layer.adaLN_modulation.1.weight", second)));

  write_diffusers(named(tiny("ae.safetensors"), ModelPart::Autoencoder), path);
  const auto vae = open_weights(path);
  EXPECT_EQ(vae->find("encoder.mid_block.attentions.0.to_out.0.weight")->shape, (Shape{64, 64}));
  EXPECT_EQ(vae->find("encoder.mid_block.attentions.0.to_out.0.bias")->shape, (Shape{64}));
  EXPECT_NE(vae->find("post_quant_conv.weight"), nullptr);
  EXPECT_NE(vae->find("bn.num_batches_tracked"), nullptr);
  EXPECT_TRUE(same(vae->open("decoder.up_blocks.0.upsamplers.0.conv.weight"),
                   open_weights(tiny("ae.safetensors"))->open("decoder.up.3.upsample.conv.weight")));
}

TEST(NamedWeights, ShardsJoinedMatrices) {
  const auto path = scratch_folder() / "d.safetensors";
  const auto original = named(tiny("flux-2-klein-tiny.safetensors"), ModelPart::Transformer);
  write_diffusers(original, path);
  const auto copy = named(path, ModelPart::Transformer);
  for (int rank : {0, 1})
    for (const Shard& shard : {Shard{.axis = 0, .rank = rank, .count = 2, .parts = {256, 256, 256}},
                               Shard{.axis = 0, .rank = rank, .count = 2}, Shard{.axis = 1, .rank = rank, .count = 2}})
      EXPECT_TRUE(same(copy.open("double_blocks.0.img_attn.qkv.weight", shard),
                       original.open("double_blocks.0.img_attn.qkv.weight", shard)));
  EXPECT_TRUE(same(copy.open("final_layer.adaLN_modulation.1.weight", {.axis = 1, .rank = 1, .count = 4}),
                   original.open("final_layer.adaLN_modulation.1.weight", {.axis = 1, .rank = 1, .count = 4})));
}

TEST(NamedWeights, AcceptsOtherSpellingsAndPrefixes) {
  const auto path = scratch_folder() / "x.safetensors";
  for (const std::string prefix : {"", "model.diffusion_model.", "diffusion_model.", "model.", "transformer."}) {
    const NamedWeights weights(source_of(path, {prefix + "img_in.weight", prefix + "single_blocks.3.norm.key_norm.weight",
                                                prefix + "single_blocks.3.linear1.weight_scale", "elsewhere.weight"}),
                               ModelPart::Transformer);
    EXPECT_EQ(weights.prefix(), prefix);
    EXPECT_THAT(weights.names(), ElementsAre("img_in.weight", "single_blocks.3.norm.key_norm.scale"));
    EXPECT_EQ(weights.open("single_blocks.3.norm.key_norm.scale").dim(0), 2);
    const std::string scale = prefix + "single_blocks.3.linear1.weight_scale";
    if (prefix.empty()) EXPECT_THAT(weights.unknown(), ElementsAre("elsewhere.weight", scale));
    else EXPECT_THAT(weights.unknown(), ElementsAre(scale));
  }
  for (const std::string prefix : {"language_model.model.", "model.language_model.", "model.", "text_encoder.model.", "",
                                   "text_encoders.mistral3_24b.transformer.model."}) {
    const NamedWeights weights(source_of(path, {prefix + "embed_tokens.weight", prefix + "layers.11.mlp.up_proj.weight"}),
                               ModelPart::TextEncoder);
    EXPECT_THAT(weights.names(), ElementsAre("model.embed_tokens.weight", "model.layers.11.mlp.up_proj.weight")) << prefix;
  }
  const NamedWeights vae(source_of(path, {"first_stage_model.bn.running_var", "model.diffusion_model.img_in.weight"}),
                         ModelPart::Autoencoder);
  EXPECT_THAT(vae.names(), ElementsAre("bn.running_var"));
  EXPECT_THAT(vae.unknown(), IsEmpty());
}

TEST(NamedWeights, RefusesAPartUnderTwoPrefixes) {
  const auto source = source_of(scratch_folder() / "x.safetensors", {"img_in.weight", "model.txt_in.weight"});
  EXPECT_THAT(refusal([&] { NamedWeights(source, ModelPart::Transformer); }),
              HasSubstr("mixes tensors of the transformer with the prefix \"\" and with \"model.\""));
}

TEST(NamedWeights, NamesMissingTensors) {
  const auto folder = scratch_folder();
  const std::string attn = "transformer_blocks.0.attn.";
  const NamedWeights weights(
      source_of(folder / "x.safetensors", {attn + "to_q.weight", attn + "to_v.weight", attn + "to_out.0.weight"}),
      ModelPart::Transformer);
  EXPECT_THAT(weights.names(), ElementsAre("double_blocks.0.img_attn.proj.weight"));
  EXPECT_THAT(weights.unknown(), ElementsAre(attn + "to_q.weight", attn + "to_v.weight"));
  EXPECT_FALSE(weights.has("double_blocks.0.img_attn.qkv.weight"));
  EXPECT_THAT(refusal([&] { weights.open("double_blocks.0.img_attn.qkv.weight"); }),
              HasSubstr("has no tensor double_blocks.0.img_attn.qkv.weight (as transformer_blocks.0.attn.to_k.weight)"));
  EXPECT_THAT(refusal([&] { weights.shape("nonsense"); }), HasSubstr("has no tensor nonsense"));
}

TEST(NamedWeights, RefusesPiecesThatDoNotJoin) {
  const auto path = scratch_folder() / "x.safetensors";
  const std::vector<float> zeros(64);
  const auto with = [&](const Shape& k, DType k_type) {
    const std::string attn = "transformer_blocks.0.attn.";
    save_tensors(path, {{attn + "to_q.weight", Tensor::host_copy(zeros.data(), DType::F32, {4, 4})},
                        {attn + "to_k.weight", Tensor::host_copy(zeros.data(), k_type, k)},
                        {attn + "to_v.weight", Tensor::host_copy(zeros.data(), DType::F32, {4, 4})}});
    const auto weights = named(path, ModelPart::Transformer);
    return refusal([&] { weights.open("double_blocks.0.img_attn.qkv.weight"); });
  };
  EXPECT_EQ(with({4, 4}, DType::F32), "");
  EXPECT_THAT(with({4, 2}, DType::F32),
              HasSubstr("to_k.weight of shape [4, 2] does not join transformer_blocks.0.attn.to_q.weight"));
  EXPECT_THAT(with({4, 4}, DType::BF16), HasSubstr("to_k.weight is BF16 [4, 4] and cannot be part of a F32 [12, 4]"));
}

TEST(Names, ToDiffusersDescribesRows) {
  const auto qkv = to_diffusers(ModelPart::Transformer, "double_blocks.12.txt_attn.qkv.weight", {9, 5});
  ASSERT_EQ(qkv.size(), 3u);
  EXPECT_EQ(qkv[1].name, "transformer_blocks.12.attn.add_k_proj.weight");
  EXPECT_EQ(qkv[1].shape, (Shape{3, 5}));
  EXPECT_EQ(qkv[1].rows.at(0).begin, 3);
  EXPECT_EQ(qkv[1].rows.at(0).end, 6);
  const auto last = to_diffusers(ModelPart::Transformer, "final_layer.adaLN_modulation.1.weight", {8, 4});
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].name, "norm_out.linear.weight");
  ASSERT_EQ(last[0].rows.size(), 2u);
  EXPECT_EQ(last[0].rows[0].begin, 4);
  EXPECT_EQ(last[0].rows[1].begin, 0);
  EXPECT_EQ(to_diffusers(ModelPart::Autoencoder, "decoder.up.0.block.2.conv1.bias", {3})[0].name,
            "decoder.up_blocks.3.resnets.2.conv1.bias");
  EXPECT_EQ(to_diffusers(ModelPart::Autoencoder, "decoder.up.7.block.2.conv1.bias", {3})[0].name,
            "decoder.up.7.block.2.conv1.bias");
  EXPECT_THAT(refusal([] {
                to_diffusers(ModelPart::Transformer, "double_blocks.0.img_attn.qkv.weight", {8, 4});
              }),
              HasSubstr("does not split into 3 equal parts"));
}

// A header from outside: every tensor has a prefix of its own.
TEST(NamedWeights, ManyPrefixesTakeLittleTime) {
  std::string header = "{";
  for (int i = 0; i < 200'000; ++i)
    header += (i ? ",\"" : "\"") + ("text_encoders.q" + std::to_string(i)) +
              R"(.transformer.model.layers.0.mlp.up_proj.weight":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  const auto path = scratch_folder() / "prefixes.safetensors";
  write_file(path, container(header + "}"));
  const std::clock_t began = std::clock();  // of the processor: other programs do not count
  const auto source = open_weights(path);
  for (const ModelPart part : {ModelPart::Transformer, ModelPart::TextEncoder, ModelPart::Autoencoder})
    NamedWeights(source, part);
  EXPECT_LT((std::clock() - began) / CLOCKS_PER_SEC, 30) << "comparing all with all takes hours";
}

}  // namespace
}  // namespace flux2
