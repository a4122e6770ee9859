#include "weights/open_tensor.h"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "weights/test_files.h"

namespace flux2 {
namespace {

using namespace testing_files;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A stored tensor whose U8 or F32 elements count 0, 1, 2, …; it owns its bytes.
struct Counting {
  std::vector<float> floats;
  std::vector<uint8_t> small;
  StoredTensor tensor;

  Counting(DType dtype, const Shape& shape, const std::string& name = "t") {
    const auto n = static_cast<size_t>(shape.numel());
    floats.resize(n);
    std::iota(floats.begin(), floats.end(), 0.0f);
    small.assign(floats.begin(), floats.end());
    tensor = {name, name_of(dtype), dtype, shape, {}, nullptr};
    tensor.bytes = dtype == DType::F32 ? std::as_bytes(std::span(floats)) : std::as_bytes(std::span(small));
  }
};

std::vector<int> values(const Tensor& t) {
  std::vector<int> v;
  for (int64_t i = 0; i < t.numel(); ++i)
    v.push_back(t.dtype() == DType::F32 ? static_cast<int>(t.data<float>()[i]) : t.data<uint8_t>()[i]);
  return v;
}

TEST(Shard, CutsEqualSlices) {
  const auto ranges = Shard{.rank = 1, .count = 2}.ranges(8);
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].begin, 4);
  EXPECT_EQ(ranges[0].end, 8);
  EXPECT_THAT(refusal([] { Shard{.count = 3}.ranges(8); }), HasSubstr("8 rows or columns cannot be cut into 3 equal slices"));
  EXPECT_THAT(refusal([] { Shard{.rank = 2, .count = 2}.ranges(8); }), HasSubstr("shard 2 of 2"));
  EXPECT_THAT(refusal([] { Shard{.count = 2, .parts = {4, 2}}.ranges(8); }), HasSubstr("do not sum to 8"));
  EXPECT_THAT(refusal([] { Shard{.count = 2}.ranges(96, 32); }), HasSubstr("cuts through a block of 32"));
}

TEST(OpenTensor, ReturnsViewsIfPossible) {
  const Counting t(DType::F32, {4, 3});
  EXPECT_TRUE(t.tensor.aligned());
  EXPECT_EQ(open_tensor(t.tensor).raw(), t.floats.data());
  const Tensor rows = open_tensor(t.tensor, {.axis = 0, .rank = 1, .count = 2});
  EXPECT_EQ(rows.raw(), t.floats.data() + 6);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
}

TEST(OpenTensor, CopiesMisalignedTensors) {
  const std::vector<float> wanted{1.5f, -2.5f};
  std::vector<std::byte> bytes(1 + 8);
  std::memcpy(bytes.data() + 1, wanted.data(), 8);
  const StoredTensor stored{"t", "F32", DType::F32, {2}, std::span(bytes).subspan(1), nullptr};
  EXPECT_FALSE(stored.aligned());
  const Tensor t = open_tensor(stored);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % 4, 0u);
  EXPECT_EQ(t.data<float>()[0], 1.5f);
  EXPECT_EQ(t.data<float>()[1], -2.5f);
}

TEST(OpenTensor, ScalarsAndEmptyTensors) {
  const Counting scalar(DType::F32, {});
  EXPECT_EQ(open_tensor(scalar.tensor).shape(), Shape{});
  EXPECT_EQ(open_tensor(scalar.tensor).numel(), 1);
  const Counting none(DType::U8, {0, 5});
  EXPECT_EQ(open_tensor(none.tensor).shape(), (Shape{0, 5}));
  EXPECT_TRUE(open_tensor(none.tensor).defined());
  EXPECT_EQ(open_tensor(none.tensor, {.axis = 0, .rank = 1, .count = 2}).numel(), 0);
}

TEST(OpenTensor, ShardsWithParts) {
  const Counting t(DType::U8, {6, 2});  // parts of 4 and 2 rows
  const Tensor first = open_tensor(t.tensor, {.axis = 0, .rank = 0, .count = 2, .parts = {4, 2}});
  EXPECT_EQ(first.shape(), (Shape{3, 2}));
  EXPECT_THAT(values(first), ElementsAre(0, 1, 2, 3, 8, 9));
  EXPECT_THAT(values(open_tensor(t.tensor, {.axis = 0, .rank = 1, .count = 2, .parts = {4, 2}})),
              ElementsAre(4, 5, 6, 7, 10, 11));
}

TEST(OpenTensor, ShardsColumnsAndMiddleAxes) {
  const Counting matrix(DType::F32, {2, 4});
  EXPECT_THAT(values(open_tensor(matrix.tensor, {.axis = 1, .rank = 1, .count = 2})), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(values(open_tensor(matrix.tensor, {.axis = -1, .rank = 0, .count = 2, .parts = {2, 2}})), ElementsAre(0, 2, 4, 6));
  const Counting cube(DType::U8, {2, 2, 2});
  EXPECT_THAT(values(open_tensor(cube.tensor, {.axis = 1, .rank = 1, .count = 2})), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(values(open_tensor(cube.tensor, {.axis = 2, .rank = 0, .count = 2})), ElementsAre(0, 2, 4, 6));
}

TEST(OpenTensor, ShardsBlocks) {
  std::vector<BlockQ8_0> blocks(2 * 4);  // [2, 128]
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].q[0] = static_cast<int8_t>(i);
  const StoredTensor stored{"t", "Q8_0", DType::Q8_0, {2, 128}, std::as_bytes(std::span(blocks)), nullptr};
  const Tensor rows = open_tensor(stored, {.axis = 0, .rank = 1, .count = 2});
  EXPECT_EQ(rows.shape(), (Shape{1, 128}));
  EXPECT_EQ(rows.data<BlockQ8_0>()[0].q[0], 4);
  const Tensor columns = open_tensor(stored, {.axis = 1, .rank = 1, .count = 2});
  EXPECT_EQ(columns.shape(), (Shape{2, 64}));
  EXPECT_EQ(columns.data<BlockQ8_0>()[0].q[0], 2);
  EXPECT_EQ(columns.data<BlockQ8_0>()[3].q[0], 7);
  EXPECT_THAT(refusal([&] { open_tensor(stored, {.axis = 1, .rank = 0, .count = 8}); }), HasSubstr("cuts through a block of 32"));
}

TEST(OpenTensor, JoinsRowsOfSeveralTensors) {
  const Counting a(DType::U8, {2, 2}, "a"), b(DType::U8, {4, 2}, "b");
  const std::vector<StoredRows> pieces{{&b.tensor, {2, 4}}, {&a.tensor, {0, 2}}};
  EXPECT_THAT(values(open_tensor(pieces, {4, 2})), ElementsAre(4, 5, 6, 7, 0, 1, 2, 3));
  EXPECT_THAT(values(open_tensor(pieces, {4, 2}, {.axis = 0, .rank = 0, .count = 2, .parts = {2, 2}})), ElementsAre(4, 5, 0, 1));
  EXPECT_THAT(values(open_tensor(pieces, {4, 2}, {.axis = 1, .rank = 1, .count = 2})), ElementsAre(5, 7, 1, 3));
  const Counting other(DType::F32, {2, 2}, "other");
  EXPECT_THAT(refusal([&] {
                open_tensor(std::vector<StoredRows>{{&a.tensor, {0, 2}}, {&other.tensor, {0, 2}}}, {4, 2});
              }),
              HasSubstr("tensor other is F32 [2, 2] and cannot be part of a U8 [4, 2]"));
}

}  // namespace
}  // namespace flux2
