#include "base/base64.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

std::string encode(std::string_view text) { return base64_encode(std::as_bytes(std::span(text))); }

std::string decode(std::string_view text) {
  auto bytes = base64_decode(text);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

TEST(Base64, AgreesWithTheStandardsExamples) {
  const std::pair<const char*, const char*> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (auto [plain, coded] : cases) {
    EXPECT_EQ(encode(plain), coded);
    EXPECT_EQ(decode(coded), plain);
  }
}

TEST(Base64, RoundTripsEveryByte) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  for (size_t length : {254u, 255u, 256u}) EXPECT_EQ(decode(encode(all.substr(0, length))), all.substr(0, length));
}

TEST(Base64, SkipsWhiteSpaceAndMissingPadding) {
  EXPECT_EQ(decode("Zm9v\r\n YmE"), "fooba");
  EXPECT_EQ(decode("Zg"), "f");
}

TEST(Base64, RejectsInvalidText) {
  for (const char* bad : {"Zm9*", "Z", "Zg=", "Z===", "Zg==Zg==", "Zm-_"}) {
    EXPECT_THROW(base64_decode(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace flux2
