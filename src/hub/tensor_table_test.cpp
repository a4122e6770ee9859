#include "hub/tensor_table.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

StoredTensor tensor(const std::string& name, const Shape& shape) {
  return {.name = name, .dtype_name = "BF16", .dtype = DType::BF16, .shape = shape, .bytes = {}};
}

TEST(TensorGroups, JoinTheSameLayerOfEveryBlock) {
  const WeightSource source(
      {tensor("img_in.weight", {8, 4}), tensor("blocks.0.fc1.weight", {4, 4}), tensor("blocks.11.fc1.weight", {4, 4}),
       tensor("blocks.12.fc1.weight", {4, 2}), tensor("other.scale", {3})},
      {}, "test");
  const auto groups = tensor_groups(source);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[0].name, "img_in.weight");
  EXPECT_EQ(groups[1].name, "blocks.*.fc1.weight");
  EXPECT_EQ(groups[1].count, 2);
  EXPECT_EQ(groups[1].parameters, 32);
  EXPECT_EQ(groups[2].parameters, 8);  // another shape
  EXPECT_EQ(tensor_groups(source, "blocks.").size(), 2u);
}

}  // namespace
}  // namespace flux2
