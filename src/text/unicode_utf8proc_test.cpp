#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "text/unicode.h"
#include "text/unicode_tables.h"

namespace flux2 {
namespace {

std::string utf8proc_nfc(const std::string& text) {
  utf8proc_uint8_t* result = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), text.size(), &result,
                                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string out(reinterpret_cast<char*>(result), length);
  std::free(result);
  return out;
}

// Code points that do something under normalization, all of them assigned in the tables' version of Unicode.
std::vector<char32_t> active_code_points() {
  std::vector<char32_t> codes = {'a', 'e', 'o', 'u', 'A', 'q', ' ', 0x4E00, 0x1F431};
  for (const auto& d : unicode_tables::kDecompositions) {
    codes.push_back(d.code);
    codes.push_back(d.first);
    if (d.second) codes.push_back(d.second);
  }
  for (const auto& range : unicode_tables::kCombining) {
    for (char32_t c = range.first; c <= range.last; ++c) codes.push_back(c);
  }
  for (char32_t c = 0x1100; c < 0x1200; ++c) codes.push_back(c);
  for (char32_t c = 0xAC00; c < 0xD7A4; c += 27) codes.push_back(c);
  return codes;
}

TEST(UnicodeAgainstUtf8proc, EveryActiveCodePoint) {
  for (char32_t code : active_code_points()) {
    std::string text;
    append_utf8(text, code);
    ASSERT_EQ(normalize_nfc(text), utf8proc_nfc(text)) << std::hex << uint32_t(code);
  }
}

TEST(UnicodeAgainstUtf8proc, RandomSequences) {
  const std::vector<char32_t> codes = active_code_points();
  std::mt19937 random(1);
  for (int round = 0; round < 100000; ++round) {
    std::string text;
    for (int n = 1 + random() % 8; n > 0; --n) append_utf8(text, codes[random() % codes.size()]);
    ASSERT_EQ(normalize_nfc(text), utf8proc_nfc(text)) << "round " << round << ": " << text;
  }
}

}  // namespace
}  // namespace flux2
