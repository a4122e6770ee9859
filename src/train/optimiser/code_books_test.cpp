#include "train/optimiser/code_books.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tensor/optimiser_rules.h"

namespace flux2 {

namespace {

TEST(CodeBooks, HaveTheKnownValues) {
  const auto& with_sign = signed_code_book();
  const auto& without_sign = unsigned_code_book();
  EXPECT_FLOAT_EQ(with_sign[0], -0.99296874f);
  EXPECT_EQ(with_sign[127], 0.0f);
  EXPECT_EQ(with_sign[255], 1.0f);
  EXPECT_EQ(without_sign[0], 0.0f);
  EXPECT_FLOAT_EQ(without_sign[1], 3.25e-7f);
  EXPECT_FLOAT_EQ(without_sign[254], 0.9964844f);
  EXPECT_EQ(without_sign[255], 1.0f);
  for (const auto* book : {&with_sign, &without_sign})
    for (size_t i = 1; i < 256; ++i) EXPECT_LT((*book)[i - 1], (*book)[i]);
}

TEST(CodeBooks, RoundTripErrors) {
  for (int i = 0; i <= 9000; ++i) {
    const float v = 0.1f + static_cast<float>(i) * 1e-4f, largest = 3.0f;
    for (const float s : {v, -v}) {
      const uint8_t code = code_of(signed_code_book().data(), true, s * largest, largest);
      EXPECT_LE(std::abs(signed_code_book()[code] - s), 0.0071f) << s;
    }
    const uint8_t code = code_of(unsigned_code_book().data(), false, v * largest, largest);
    EXPECT_LE(std::abs(unsigned_code_book()[code] - v), 0.0036f) << v;
  }
}

TEST(CodeBooks, CodesAreTheNearestEntries) {
  for (const auto* book : {&signed_code_book(), &unsigned_code_book()})
    for (int i = -3000; i <= 3000; ++i) {
      const float v = static_cast<float>(i) / 2990.0f;
      const int code = nearest_code(book->data(), v);
      const auto closer =
          std::min_element(book->begin(), book->end(), [&](float a, float b) { return std::abs(a - v) < std::abs(b - v); });
      EXPECT_FLOAT_EQ(std::abs((*book)[static_cast<size_t>(code)] - v), std::abs(*closer - v)) << v;
    }
}

TEST(CodeBooks, ASignedValueKeepsItsSign) {
  const float* book = signed_code_book().data();
  EXPECT_EQ(code_of(book, true, 1e-9f, 1.0f), 127);
  EXPECT_EQ(code_of(book, true, -1e-9f, 1.0f), 126);
  EXPECT_EQ(code_of(book, true, 0.0f, 1.0f), 127);
  EXPECT_EQ(code_of(book, true, 0.0f, 0.0f), 127);
  EXPECT_EQ(code_of(unsigned_code_book().data(), false, 0.0f, 0.0f), 0);
}

}  // namespace

}  // namespace flux2
