#include "base/number_from_text.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace flux2 {
namespace {

TEST(NumberFromText, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(number_from_text<int64_t>("42"), 42);
  EXPECT_EQ(number_from_text<int64_t>("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(number_from_text<double>("0.25"), 0.25);
  EXPECT_EQ(number_from_text<double>("-1e3"), -1000);
  for (const char* text : {"", " 42", "42 ", "+42", "42px", "0x10", "4.5", "abc", "9223372036854775808"})
    EXPECT_EQ(number_from_text<int64_t>(text), std::nullopt) << text;
  EXPECT_EQ(number_from_text<uint64_t>("-1"), std::nullopt);
  EXPECT_EQ(number_from_text<double>("1e999"), std::nullopt);
  EXPECT_EQ(number_from_text<double>("1,5"), std::nullopt);
}

}  // namespace
}  // namespace flux2
