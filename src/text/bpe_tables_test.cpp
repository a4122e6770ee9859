#include "text/bpe_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

std::string error_of(TokenTable& table, std::string_view token, int64_t id) {
  try {
    table.add(token, id);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::BadFile);
    return e.what();
  }
  return "";
}

TEST(TokenTable, FindsByStringAndById) {
  TokenTable table;
  EXPECT_EQ(table.find("x"), std::nullopt);
  for (int i = 0; i < 20000; ++i) table.add("token" + std::to_string(i), 2 * i);
  for (int i = 0; i < 20000; ++i) {
    ASSERT_EQ(table.find("token" + std::to_string(i)), 2 * i);
    ASSERT_EQ(table[2 * i], "token" + std::to_string(i));
  }
  EXPECT_EQ(table.find("token20000"), std::nullopt);
  EXPECT_EQ(table[1], "");
  EXPECT_EQ(table[-1], "");
  EXPECT_EQ(table[1 << 30], "");
  EXPECT_EQ(table.id_limit(), 39999);
}

TEST(TokenTable, RefusesContradictions) {
  TokenTable table;
  table.add("a", 5);
  EXPECT_EQ(error_of(table, "a", 5), "");  // said twice, but the same
  EXPECT_THAT(error_of(table, "a", 6), HasSubstr("two ids, 5 and 6"));
  EXPECT_THAT(error_of(table, "b", 5), HasSubstr("\"a\" and \"b\" have the same id 5"));
  EXPECT_THAT(error_of(table, "c", -1), HasSubstr("id -1"));
  EXPECT_THAT(error_of(table, "c", TokenTable::kMaxIds), HasSubstr("is not in 0…"));
  EXPECT_THAT(error_of(table, "c", INT64_MAX), HasSubstr("is not in 0…"));
  EXPECT_THAT(error_of(table, "", 7), HasSubstr("empty"));
}

TEST(MergeTable, FindsPairs) {
  constexpr int kCount = 5000;
  MergeTable table(kCount);
  for (int i = 0; i < kCount; ++i) table.put({i % 70, i, static_cast<uint32_t>(i), i + 1});
  for (int i = 0; i < kCount; ++i) {
    const Merge* merge = table.find(i % 70, i);
    ASSERT_NE(merge, nullptr);
    EXPECT_EQ(merge->rank, static_cast<uint32_t>(i));
    EXPECT_EQ(merge->merged, i + 1);
    EXPECT_EQ(table.find(i, i % 70 + 100000), nullptr);
  }
  table.put({0, 0, 99, 7});
  EXPECT_EQ(table.find(0, 0)->rank, 99u);  // the last of equal pairs stays
  EXPECT_EQ(MergeTable().find(0, 0), nullptr);
}

}  // namespace
}  // namespace flux2
