#include "weights/quantised_values.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "tensor/blocks.h"
#include "weights/named_weights.h"
#include "weights/quantised_kinds.h"
#include "weights/safetensors_writer.h"
#include "weights/test_files.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

using namespace testing_files;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Tensors = std::vector<std::pair<std::string, Tensor>>;

const std::string kLayer = "double_blocks.0.img_attn.proj.";

Tensor floats(const Shape& shape, std::vector<float> values) { return Tensor::host_copy(values.data(), DType::F32, shape); }
Tensor bytes(const Shape& shape, std::vector<uint8_t> values, DType dtype = DType::U8) {
  return Tensor::host_copy(values.data(), dtype, shape);
}
Tensor text(const std::string& s) { return bytes({static_cast<int64_t>(s.size())}, {s.begin(), s.end()}); }

std::shared_ptr<const WeightSource> written(const Tensors& tensors, const std::map<std::string, std::string>& metadata = {}) {
  const auto path = scratch_folder() / "x.safetensors";
  save_tensors(path, tensors, metadata);
  return open_weights(path);
}

std::vector<float> values(const Tensor& t) {
  std::vector<float> out;
  for (int64_t i = 0; i < t.numel(); ++i) out.push_back(to_float(t.data<bf16>()[i]));
  return out;
}

TEST(QuantisedValues, ScalesOfBlocksGroupsAndColumns) {
  // e4m3 0x38 is one, 0x40 two.
  const int64_t rows = 130, columns = 256;
  const Tensor ones = bytes({rows, columns}, std::vector<uint8_t>(static_cast<size_t>(rows * columns), 0x38), DType::F8_E4M3);
  const auto source =
      written({{"w.weight", ones}, {"w.weight_scale_inv", floats({2, 2}, {1, 2, 3, 4})}, {"w.input_scale", floats({}, {9})}});
  EXPECT_THAT(source->names(), ElementsAre("w.weight"));
  const Tensor w = source->open("w.weight");
  EXPECT_EQ(w.dtype(), DType::BF16);
  const auto v = values(w);
  EXPECT_EQ(v[0], 1);
  EXPECT_EQ(v[127], 1);
  EXPECT_EQ(v[128], 2);
  EXPECT_EQ(v[127 * 256 + 255], 2);
  EXPECT_EQ(v[128 * 256], 3);
  EXPECT_EQ(v[129 * 256 + 200], 4) << "the last block of rows is cut off";

  std::vector<float> groups(static_cast<size_t>(rows * 4));
  std::iota(groups.begin(), groups.end(), 0.0f);
  const auto musubi = values(written({{"w.weight", ones}, {"w.scale_weight", floats({rows, 4, 1}, groups)}})->open("w.weight"));
  EXPECT_EQ(musubi[63], 0);
  EXPECT_EQ(musubi[64], 1);
  EXPECT_EQ(musubi[3 * 256 + 255], 15);

  std::vector<float> by_column(static_cast<size_t>(columns));
  std::iota(by_column.begin(), by_column.end(), 0.0f);
  EXPECT_EQ(
      values(written({{"w.weight", ones}, {"w.weight_scale", floats({1, columns}, by_column)}})->open("w.weight"))[256 + 77], 77);

  EXPECT_THAT(refusal([&] {
                written({{"w.weight", ones}, {"w.weight_scale", floats({7, 3}, std::vector<float>(21, 1))}});
              }),
              HasSubstr("fit no way of scaling"));
  const auto broken = written({{"w.weight", ones}, {"w.weight_scale", floats({2, 2}, {1, NAN, 1, 1})}});
  EXPECT_THAT(refusal([&] { broken->open("w.weight"); }), HasSubstr("which is not a valid scale"));
}

TEST(QuantisedValues, OneScaleOrOneForEachRowStaysF8) {
  const Tensor ones = bytes({2, 2}, {0x38, 0x38, 0x38, 0x38}, DType::F8_E4M3);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{2}, Shape{2, 1}}) {
    const auto source = written({{"w.weight", ones},
                                 {"w.weight_scale", floats(shape, std::vector<float>(static_cast<size_t>(shape.numel()), 2.0f))},
                                 {"model.scaled_fp8", bytes({0}, {}, DType::F8_E4M3)},
                                 {"w.comfy_quant", text(R"({"format":"float8_e4m3fn"})")}});
    EXPECT_EQ(source->find("w.weight")->dtype, DType::F8_E4M3);
    EXPECT_FALSE(source->find("w.comfy_quant"));
    EXPECT_FALSE(source->find("model.scaled_fp8"));
  }
  EXPECT_EQ(written({{"w.weight", ones}})->find("w.weight")->dtype, DType::F8_E4M3) << "unscaled files are valid";
}

TEST(QuantisedValues, TiledScalesHaveTheTensorCoreOrder) {
  const int64_t c = 192;
  EXPECT_EQ(tiled_scale_offset(0, 0, c), 0);
  EXPECT_EQ(tiled_scale_offset(0, 1, c), 1);
  EXPECT_EQ(tiled_scale_offset(0, 4, c), 512);
  EXPECT_EQ(tiled_scale_offset(1, 0, c), 16);
  EXPECT_EQ(tiled_scale_offset(32, 0, c), 4);
  EXPECT_EQ(tiled_scale_offset(33, 5, c), 533);
  EXPECT_EQ(tiled_scale_offset(127, 3, c), 511);
  EXPECT_EQ(tiled_scale_offset(128, 0, c), 24576);
  EXPECT_EQ(tiled_scale_offset(3071, 191, c), 589823);
}

// Row 1 has the scale 2 in its second block, everything else 1; all codes are the byte 0x2f.
TEST(QuantisedValues, Nvfp4InBothOrders) {
  const Tensor codes = bytes({2, 16}, std::vector<uint8_t>(32, 0x2f));
  std::vector<uint8_t> tiled(128 * 4, 0), linear = {0x38, 0x38, 0x38, 0x40};
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t b = 0; b < 2; ++b) tiled[static_cast<size_t>(tiled_scale_offset(r, b, 2))] = r == 1 && b == 1 ? 0x40 : 0x38;
  const Tensor global = floats({}, {0.5f});
  const auto comfy = written({{"w.weight", codes},
                              {"w.weight_scale", bytes({128, 4}, tiled, DType::F8_E4M3)},
                              {"w.weight_scale_2", global},
                              {"w.input_scale", floats({}, {150})},
                              {"w.comfy_quant", text(R"({"format":"nvfp4"})")}});
  EXPECT_THAT(comfy->names(), ElementsAre("w.weight"));
  EXPECT_EQ(comfy->find("w.weight")->shape, (Shape{2, 32}));
  EXPECT_EQ(comfy->find("w.weight")->dtype_name, "NVFP4");
  const auto high_first = values(comfy->open("w.weight"));
  EXPECT_EQ(high_first[0], 0.5f);
  EXPECT_EQ(high_first[1], -3.0f);
  EXPECT_EQ(high_first[32 + 16], 1.0f);
  EXPECT_EQ(high_first[32 + 17], -6.0f);
  const auto exported = written({{"w.weight", codes}, {"w.weight_scale", bytes({2, 2}, linear)}, {"w.weight_scale_2", global}});
  const auto low_first = values(exported->open("w.weight"));
  EXPECT_EQ(low_first[0], -3.0f);
  EXPECT_EQ(low_first[1], 0.5f);
  EXPECT_EQ(low_first[32 + 16], -6.0f);

  std::vector<float> factors(32, 1.0f);
  factors[1] = 2;
  const auto smoothed = written({{"w.weight", codes},
                                 {"w.weight_scale", bytes({2, 2}, linear)},
                                 {"w.weight_scale_2", global},
                                 {"w.pre_quant_scale", floats({32}, factors)}});
  EXPECT_EQ(values(smoothed->open("w.weight"))[1], 1.0f) << "a factor of the activations is taken into the weight";
  EXPECT_THAT(
      refusal([&] {
        written({{"w.weight", codes}, {"w.weight_scale", bytes({2, 3}, {1, 2, 3, 4, 5, 6})}, {"w.weight_scale_2", global}});
      }),
      HasSubstr("do not fit"));
}

// The weights that a model loads keep their 4 or 8 bits in memory and have the same values as BF16.
TEST(QuantisedValues, StayQuantisedInBlocks) {
  const int64_t rows = 130, columns = 256;
  const auto noise = [](int64_t count, uint32_t seed) {
    std::vector<uint8_t> out(static_cast<size_t>(count));
    for (uint8_t& b : out) {
      seed = seed * 1664525u + 1013904223u;
      b = static_cast<uint8_t>(seed >> 24);
      if ((b & 0x7f) == 0x7f) b ^= 1;  // NaN of e4m3
    }
    return out;
  };
  const Shape tiles{256, 16};  // scales of 130 × 16 groups, padded
  const Tensors files[] = {{{kLayer + "weight", bytes({rows, columns}, noise(rows * columns, 1), DType::F8_E4M3)},
                            {kLayer + "weight_scale_inv", floats({2, 2}, {0.5f, 0.3f, 0.7f, 0.11f})}},
                           {{kLayer + "weight", bytes({rows, columns / 2}, noise(rows * columns / 2, 2))},
                            {kLayer + "weight_scale", bytes({rows, 16}, noise(rows * 16, 3), DType::F8_E4M3)},
                            {kLayer + "weight_scale_2", floats({}, {0.37f})}},
                           {{kLayer + "weight", bytes({rows, columns / 2}, noise(rows * columns / 2, 4))},
                            {kLayer + "weight_scale", bytes(tiles, noise(tiles.numel(), 5), DType::F8_E4M3)},
                            {kLayer + "weight_scale_2", floats({}, {0.37f})},
                            {kLayer + "comfy_quant", text(R"({"format":"nvfp4"})")}}};
  const DType types[] = {DType::F8_128, DType::NVFP4, DType::NVFP4};
  for (size_t i = 0; i < 3; ++i) {
    const NamedWeights named(written(files[i]), ModelPart::Transformer);
    const std::string name = kLayer + "weight";
    EXPECT_EQ(named.dtype(name), types[i]);
    const Tensor w = named.open(name);
    ASSERT_EQ(w.dtype(), types[i]);
    const WeightRows reference(named, name);
    std::vector<float> wanted(static_cast<size_t>(columns)), got(wanted.size());
    for (int64_t row = 0; row < rows; ++row) {
      reference.values(row, wanted.data());
      decode_blocks(w.dtype(), w.data<const std::byte>() + row * bytes_for(w.dtype(), columns), columns, got.data());
      ASSERT_EQ(got, wanted) << i << ", row " << row;
    }
    const Tensor half = named.open(name, Shard{.axis = 1, .rank = 1, .count = 2});
    ASSERT_EQ(half.shape(), (Shape{rows, columns / 2}));
    decode_blocks(half.dtype(), half.data<const std::byte>(), columns / 2, got.data());
    reference.values(0, wanted.data());
    EXPECT_TRUE(std::equal(wanted.begin() + columns / 2, wanted.end(), got.begin())) << "a shard of columns";
  }
}

TEST(QuantisedValues, BitsandbytesPlainAndNested) {
  std::vector<float> map = {-1,
                            -0.6961928009986877f,
                            -0.5250730514526367f,
                            -0.39491748809814453f,
                            -0.28444138169288635f,
                            -0.18477343022823334f,
                            -0.09105003625154495f,
                            0,
                            0.07958029955625534f,
                            0.16093020141124725f,
                            0.24611230194568634f,
                            0.33791524171829224f,
                            0.44070982933044434f,
                            0.5626170039176941f,
                            0.7229568362236023f,
                            1};
  const Tensor codes = bytes({64, 1}, std::vector<uint8_t>(64, 0x3c));
  const std::string state = R"({"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[2,64])";
  const auto plain = written({{"w.weight", codes},
                              {"w.weight.absmax", floats({2}, {2, 1})},
                              {"w.weight.quant_map", floats({16}, map)},
                              {"w.weight.quant_state.bitsandbytes__nf4", text(state + "}")}});
  EXPECT_THAT(plain->names(), ElementsAre("w.weight"));
  EXPECT_EQ(plain->find("w.weight")->shape, (Shape{2, 64}));
  std::vector<float> row(64);
  plain->find("w.weight")->quantised->rows(0, 1, row.data());
  EXPECT_EQ(row[0], -0.7898349761962891f);
  EXPECT_EQ(row[1], 0.8814196586608887f);
  plain->find("w.weight")->quantised->rows(1, 2, row.data());
  EXPECT_EQ(row[0], -0.39491748809814453f);

  std::vector<float> nested_map(256, 0.0f);
  nested_map[10] = 0.5f, nested_map[20] = 0.25f;
  const auto nested =
      written({{"w.weight", codes},
               {"w.weight.absmax", bytes({2}, {10, 20})},
               {"w.weight.quant_map", floats({16}, map)},
               {"w.weight.nested_absmax", floats({1}, {3})},
               {"w.weight.nested_quant_map", floats({256}, nested_map)},
               {"w.weight.quant_state.bitsandbytes__nf4", text(state + R"(,"nested_blocksize":256,"nested_offset":0.5})")}});
  nested->find("w.weight")->quantised->rows(0, 1, row.data());
  EXPECT_EQ(row[0], -0.7898349761962891f) << "0.5 · 3 + 0.5 is 2";
  nested->find("w.weight")->quantised->rows(1, 2, row.data());
  EXPECT_FLOAT_EQ(row[1], 0.44070982933044434f * 1.25f);
  EXPECT_THAT(refusal([&] {
                written({{"w.weight", codes},
                         {"w.weight.absmax", floats({3}, {2, 1, 1})},
                         {"w.weight.quant_map", floats({16}, map)},
                         {"w.weight.quant_state.bitsandbytes__nf4", text(state + "}")}});
              }),
              HasSubstr("expected 2 elements"));
}

TEST(QuantisedValues, RotationsAreTheirOwnInverse) {
  std::vector<float> x = {8, -4, 2, 6};
  rotate(x.data(), 4);
  EXPECT_THAT(x, ElementsAre(0, 4, 10, -2));
  rotate(x.data(), 4);
  EXPECT_THAT(x, ElementsAre(8, -4, 2, 6));
  std::vector<float> first(16, 0.0f);
  first[0] = 1;
  rotate(first.data(), 16);
  for (size_t i = 0; i < 16; ++i) {
    const float want = 0.25f * (i % 4 == 3 ? -1.0f : 1.0f) * (i / 4 == 3 ? -1.0f : 1.0f);
    EXPECT_EQ(first[i], want) << i;
  }
}

TEST(QuantisedValues, Int8PlainRotatedAndOfBitsandbytes) {
  const Tensor q = bytes({2, 4}, {0, 4, 10, 254, 1, 2, 3, 4}, DType::I8);  // 254 is −2
  const auto scaled = [](const std::shared_ptr<const WeightSource>& source) {
    std::vector<float> all(8);
    EXPECT_EQ(source->find("w.weight")->dtype, DType::I8) << "rows with one scale stay as they are";
    values_of(*source, *source->find("w.weight"))->rows(0, 2, all.data());
    return all;
  };
  EXPECT_THAT(scaled(written({{"w.weight", q}, {"w.weight_scale", floats({2, 1}, {1, 0.5f})}})),
              ElementsAre(0, 4, 10, -2, 0.5f, 1, 1.5f, 2));
  EXPECT_EQ(scaled(written({{"w.weight", q}, {"w.SCB", floats({2}, {127, 254})}}))[5], 4.0f);
  const auto table = written({{"model.embed_tokens.weight", q}, {"model.embed_tokens.weight_scale", floats({2, 1}, {1, 0.5f})}});
  EXPECT_EQ(values(table->open("model.embed_tokens.weight"))[5], 1.0f) << "where rows are looked up nobody scales them";
  const auto rotated =
      written({{"w.weight", q},
               {"w.weight_scale", floats({}, {1})},
               {"w.comfy_quant", text(R"({"format":"int8_tensorwise","params":{"convrot":true,"convrot_groupsize":4}})")}});
  const auto v = values(rotated->open("w.weight"));
  EXPECT_THAT(std::vector<float>(v.begin(), v.begin() + 4), ElementsAre(8, -4, 2, 6));
  EXPECT_THAT(refusal([&] {
                written({{"w.weight", q},
                         {"w.weight_scale", floats({}, {1})},
                         {"w.comfy_quant", text(R"({"format":"int8_tensorwise","convrot":true,"convrot_groupsize":8})")}});
              }),
              HasSubstr("does not fit"));
}

TEST(QuantisedValues, UnsupportedFormatsFailOnlyWhenOpened) {
  const Tensor q = bytes({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto unknown = written({{"w.weight", q}});
  EXPECT_THAT(refusal([&] { unknown->open("w.weight"); }), HasSubstr("quantised by an unknown scheme"));
  const auto awq = written({{"w.weight", q}, {"w.comfy_quant", text(R"({"format":"awq_w4a16"})")}});
  EXPECT_THAT(refusal([&] { awq->open("w.weight"); }), HasSubstr("stored as awq_w4a16"));
  EXPECT_THAT(refusal([&] {
                written({{"w.weight", q}, {"w.comfy_quant", text(R"({"format":"float8_e4m3fn"})")}});
              }),
              HasSubstr("is described as float8_e4m3fn and stored as U8"));
}

// Parts of a fused matrix quantised in different ways, a shard of either axis.
TEST(QuantisedValues, JoinWithOthersAndShard) {
  const Tensor codes = bytes({2, 16}, std::vector<uint8_t>(32, 0x22)), global = floats({}, {1});
  const Tensor scales = bytes({2, 2}, {0x38, 0x40, 0x38, 0x40});
  const std::vector<bf16> plain(64, to_bf16(7.0f));
  const std::string p = "transformer_blocks.0.attn.";
  const NamedWeights weights(written({{p + "to_q.weight", codes},
                                      {p + "to_q.weight_scale", scales},
                                      {p + "to_q.weight_scale_2", global},
                                      {p + "to_k.weight", Tensor::host_copy(plain.data(), DType::BF16, {2, 32})},
                                      {p + "to_v.weight", codes},
                                      {p + "to_v.weight_scale", scales},
                                      {p + "to_v.weight_scale_2", global}}),
                             ModelPart::Transformer);
  EXPECT_THAT(weights.unknown(), IsEmpty());
  const std::string name = "double_blocks.0.img_attn.qkv.weight";
  EXPECT_EQ(weights.shape(name), (Shape{6, 32}));
  const auto all = values(weights.open(name));
  EXPECT_EQ(all[0], 1);
  EXPECT_EQ(all[31], 2);
  EXPECT_EQ(all[2 * 32], 7);
  EXPECT_EQ(all[5 * 32 + 16], 2);
  const Tensor half = weights.open(name, {.axis = 1, .rank = 1, .count = 2});
  EXPECT_EQ(half.shape(), (Shape{6, 16}));
  EXPECT_EQ(values(half)[0], 2);
  const Tensor third = weights.open(name, {.axis = 0, .rank = 1, .count = 2, .parts = {2, 2, 2}});
  EXPECT_EQ(third.shape(), (Shape{3, 32}));
  EXPECT_EQ(values(third)[32], 7);
}

}  // namespace
}  // namespace flux2
