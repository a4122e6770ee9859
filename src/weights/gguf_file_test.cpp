#include "weights/gguf_file.h"

#include <gmock/gmock.h>

#include <cstring>

#include "tensor/blocks.h"
#include "tests/support/paths.h"
#include "weights/gguf_writer.h"
#include "weights/named_weights.h"
#include "weights/test_files.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

using namespace testing_files;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::string bits(T v) {
  std::string out(sizeof v, '\0');
  std::memcpy(out.data(), &v, sizeof v);
  return out;
}

std::string text(const std::string& s) { return bits<uint64_t>(s.size()) + s; }

// A header put together by hand, so that it can be wrong.
std::string head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  return "GGUF" + bits(version) + bits(tensors) + bits(keys);
}

std::string entry(const std::string& name, std::vector<uint64_t> axes, uint32_t type, uint64_t offset) {
  std::string out = text(name) + bits(static_cast<uint32_t>(axes.size()));
  for (uint64_t a : axes) out += bits(a);
  return out + bits(type) + bits(offset);
}

std::string with_data(std::string header, size_t bytes, size_t alignment = 32) {
  header.resize((header.size() + alignment - 1) / alignment * alignment);
  for (size_t i = 0; i < bytes; ++i) header += static_cast<char>(i);
  return header;
}

std::string refusal_of(const std::string& file) {
  return refusal([&] { GgufFile opened(bytes_of(file)); });
}

TEST(GgufFile, ReadsValuesOfEveryTypeAndTensorsInPyTorchOrder) {
  const std::string string_array = bits<uint32_t>(9) + bits<uint32_t>(8) + bits<uint64_t>(2) + text("ab") + text("");
  const std::string file =
      with_data(head(2, 8) + text("a") + bits<uint32_t>(0) + bits<uint8_t>(200) + text("b") + bits<uint32_t>(5) +
                    bits<int32_t>(-3) + text("c") + bits<uint32_t>(6) + bits(0.5f) + text("d") + bits<uint32_t>(7) +
                    bits<uint8_t>(1) + text("e") + bits<uint32_t>(8) + text("flux") + text("f") + string_array + text("g") +
                    bits<uint32_t>(10) + bits<uint64_t>(uint64_t{1} << 40) + text("h") + bits<uint32_t>(9) + bits<uint32_t>(3) +
                    bits<uint64_t>(2) + bits<int16_t>(-1) + bits<int16_t>(7) + entry("w", {32, 3}, 8, 0) + entry("s", {}, 0, 128),
                132);
  const GgufFile opened(bytes_of(file));
  const auto& values = opened.header().values;
  EXPECT_EQ(values.at("a").text(), "200");
  EXPECT_EQ(values.at("b").text(), "-3");
  EXPECT_EQ(values.at("c").text(), "0.5");
  EXPECT_EQ(values.at("d").text(), "true");
  EXPECT_EQ(values.at("e").text(), "flux");
  EXPECT_THAT(values.at("f").strings(), ElementsAre("ab", ""));
  EXPECT_EQ(*values.at("g").unsigned_number(), uint64_t{1} << 40);
  EXPECT_THAT(values.at("h").integers(), ElementsAre(-1, 7));
  EXPECT_FALSE(values.at("b").unsigned_number());
  EXPECT_EQ(opened.metadata().size(), 6u);
  ASSERT_EQ(opened.tensors().size(), 2u);
  const StoredTensor& w = opened.tensors()[0];
  EXPECT_EQ(w.shape, (Shape{3, 32}));
  EXPECT_EQ(w.dtype, DType::Q8_0);
  EXPECT_EQ(w.bytes.size(), 102u);
  EXPECT_EQ(std::to_integer<int>(w.bytes[5]), 5);
  EXPECT_EQ(opened.tensors()[1].shape, Shape{});
  EXPECT_EQ(std::to_integer<int>(opened.tensors()[1].bytes[0]), 128);
}

TEST(GgufFile, RejectsEveryKindOfDamage) {
  const auto with_key = [](const std::string& value) { return head(0, 1) + text("k") + value; };
  EXPECT_THAT(refusal_of("GGUX"), HasSubstr("does not begin with GGUF"));
  EXPECT_THAT(refusal_of("GGUF"), HasSubstr("ends inside its header"));
  EXPECT_THAT(refusal_of(head(0, 0, 1)), HasSubstr("version 1 is not supported"));
  EXPECT_THAT(refusal_of(head(0, 0, 4)), HasSubstr("version 4 is not supported"));
  EXPECT_THAT(refusal_of(head(0, 0, 3u << 24)), HasSubstr("big-endian"));
  EXPECT_THAT(refusal_of(head(uint64_t{1} << 60, 0)), HasSubstr("over the limit"));
  EXPECT_THAT(refusal_of(head(5, 0)), HasSubstr("ends inside its header"));
  EXPECT_THAT(refusal_of(with_key(bits<uint32_t>(13))), HasSubstr("unknown value type 13"));
  EXPECT_THAT(refusal_of(with_key(bits<uint32_t>(8) + bits(uint64_t{1} << 31))), HasSubstr("over the limit"));
  EXPECT_THAT(refusal_of(with_key(bits<uint32_t>(9) + bits<uint32_t>(9) + bits<uint64_t>(0))), HasSubstr("array of arrays"));
  EXPECT_THAT(refusal_of(with_key(bits<uint32_t>(9) + bits<uint32_t>(12) + bits(uint64_t{1} << 29))), HasSubstr("ends inside"));
  EXPECT_THAT(refusal_of(head(0, 1) + text("") + bits<uint32_t>(0) + "x"), HasSubstr("has no name"));
  const std::string pair = text("k") + bits<uint32_t>(0) + "x";
  EXPECT_THAT(refusal_of(head(0, 2) + pair + pair), HasSubstr("names k twice"));
  EXPECT_THAT(refusal_of(head(0, 1) + text("general.alignment") + bits<uint32_t>(4) + bits<uint32_t>(12)),
              HasSubstr("power of two"));
  EXPECT_THAT(refusal_of(with_data(head(2, 0) + entry("a", {1}, 0, 0) + entry("a", {1}, 0, 32), 36)),
              HasSubstr("a appears twice"));
  EXPECT_THAT(refusal_of(with_data(head(1, 0) + entry("a", {1, 1, 1, 1, 1}, 0, 0), 4)), HasSubstr("5 axes"));
  EXPECT_THAT(refusal_of(with_data(head(1, 0) + entry("a", {0}, 0, 0), 4)), HasSubstr("axis of 0"));
  EXPECT_THAT(refusal_of(with_data(head(1, 0) + entry("a", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0), 4)),
              HasSubstr("has an axis"));
  EXPECT_THAT(refusal_of(with_data(head(1, 0) + entry("a", {48}, 8, 0), 51)), HasSubstr("does not fill blocks of 32 as Q8_0"));
  EXPECT_THAT(refusal_of(with_data(head(1, 0) + entry("a", {1}, 0, 4), 64)), HasSubstr("not at a multiple of 32"));
  EXPECT_THAT(refusal_of(with_data(head(1, 0) + entry("a", {9}, 0, 0), 35)), HasSubstr("the file is incomplete"));
  EXPECT_THAT(refusal_of(with_data(head(1, 0) + entry("a", {1}, 0, uint64_t{1} << 62), 35)), HasSubstr("the file is incomplete"));
  EXPECT_THAT(refusal_of(with_data(head(2, 0) + entry("a", {16}, 0, 0) + entry("b", {1}, 0, 32), 64)),
              HasSubstr("begins inside"));
}

TEST(GgufFile, UnknownTypesFailOnlyWhenOpened) {
  Lines lines;
  const std::string file =
      with_data(head(3, 0) + entry("late", {2}, 0, 32) + entry("early", {2}, 0, 0) + entry("odd", {256}, 17, 64), 64 + 74);
  const GgufFile opened(bytes_of(file), lines.log);
  ASSERT_EQ(lines.lines.size(), 1u);
  EXPECT_THAT(lines.lines[0], HasSubstr("order of the list"));
  const WeightSource source(opened.tensors(), {}, "x");
  EXPECT_EQ(source.open("early").shape(), Shape{2});
  EXPECT_THAT(refusal([&] { source.open("odd"); }), HasSubstr("stored as IQ2_XS, which is not supported"));
}

TEST(GgufFile, RestoresTheShapeThatConvertersNote) {
  const auto noted = [](std::vector<int32_t> shape) {
    return gguf_header({{"comfy.gguf.orig_shape.w", std::move(shape)}}, {{"w", DType::F16, {2, 6}}});
  };
  const std::string file = with_data(noted({3, 2, 2}), 24);
  EXPECT_EQ(GgufFile(bytes_of(file)).tensors()[0].shape, (Shape{3, 2, 2}));
  for (const auto& wrong : std::vector<std::vector<int32_t>>{{3, 5}, {}, {-1, -12}, {0}, {1 << 30, 1 << 30, 1 << 30, 1 << 30}})
    EXPECT_THAT(refusal_of(with_data(noted(wrong), 24)), HasSubstr("does not fit"));
}

TEST(GgufFile, ReadsWhatTheWriterWrites) {
  const auto path = scratch_folder() / "x.gguf";
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> blocks(static_cast<size_t>(bytes_for(DType::Q6_K, 512)), 7);
  save_gguf(path, {{"general.architecture", "flux"}, {"n", 3u}, {"f", 1.5f}, {"b", true}},
            {{"m", Tensor::host_copy(values.data(), DType::F32, {2, 3})},
             {"q", Tensor::host_copy(blocks.data(), DType::Q6_K, {2, 256})}});
  EXPECT_TRUE(is_gguf(path));
  const auto source = open_weights(path);
  EXPECT_EQ(source->metadata().at("general.architecture"), "flux");
  EXPECT_EQ(source->metadata().at("n"), "3");
  const Tensor m = source->open("m");
  EXPECT_EQ(m.shape(), (Shape{2, 3}));
  EXPECT_EQ(m.data<float>()[5], 6.0f);
  EXPECT_EQ(source->open("q", {.axis = 0, .rank = 1, .count = 2}).shape(), (Shape{1, 256}));
  EXPECT_EQ(source->find("q")->dtype, DType::Q6_K);
}

// Blocks of random bytes and what the Python package "gguf" makes of them, bit for bit.
TEST(GgufFile, DecodesAsTheReferencePackageDoes) {
  const auto source = open_weights(test::golden_folder() / "gguf-blocks.gguf");
  EXPECT_EQ(source->metadata().at("general.name"), "blocks of every type");
  for (const char* type : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"}) {
    const Tensor stored = source->open(std::string("random.") + type), want = source->open(std::string("decoded.") + type);
    ASSERT_EQ(stored.shape(), want.shape()) << type;
    std::vector<float> got(static_cast<size_t>(stored.numel()));
    decode_blocks(stored.dtype(), stored.raw(), stored.numel(), got.data());
    EXPECT_EQ(std::memcmp(got.data(), want.raw(), got.size() * sizeof(float)), 0) << type;
  }
}

// Rows of a Llama-like file come back in the order of the original; Qwen3's are as they are.
TEST(GgufFile, LanguageModelsUnderTheirCanonicalNames) {
  for (const std::string architecture : {"llama", "qwen3"}) {
    const auto path = scratch_folder() / (architecture + ".gguf");
    std::vector<float> rows(256);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    const Tensor t = Tensor::host_copy(rows.data(), DType::F32, {256, 1});
    save_gguf(path, {{"general.architecture", architecture}},
              {{"token_embd.weight", t},
               {"blk.3.attn_q.weight", t},
               {"blk.3.attn_q_norm.weight", t},
               {"blk.3.attn_v.weight", t},
               {"blk.3.attn_output.weight", t},
               {"blk.3.ffn_norm.weight", t},
               {"rope_freqs.weight", t}});
    const NamedWeights weights(open_weights(path), ModelPart::TextEncoder);
    EXPECT_EQ(weights.dialect(), Dialect::Ggml);
    for (const char* name :
         {"model.embed_tokens.weight", "model.layers.3.self_attn.q_norm.weight", "model.layers.3.self_attn.v_proj.weight",
          "model.layers.3.self_attn.o_proj.weight", "model.layers.3.post_attention_layernorm.weight"})
      EXPECT_TRUE(weights.has(name)) << name;
    EXPECT_THAT(weights.unknown(), ElementsAre("rope_freqs.weight"));
    const Tensor q = weights.open("model.layers.3.self_attn.q_proj.weight");
    // Stored rows 0, 1, 2, 3 of a head are the original's 0, 64, 1, 65.
    const bool turned = architecture == "llama";
    for (const auto& [original, stored] :
         std::vector<std::pair<size_t, float>>{{0, 0}, {64, 1}, {1, 2}, {65, 3}, {128 + 65, 128 + 3}})
      EXPECT_EQ(q.data<float>()[original], turned ? stored : static_cast<float>(original));
    EXPECT_EQ(weights.open("model.layers.3.self_attn.v_proj.weight").data<float>()[64], 64.0f);
  }
}

}  // namespace
}  // namespace flux2
