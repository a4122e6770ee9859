#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>

#include "text/pretokenize.h"
#include "text/unicode.h"
#include "text/unicode_tables.h"

namespace flux2 {
namespace {

class Regex {
 public:
  explicit Regex(std::string_view pattern) {
    int error = 0;
    size_t offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error,
                              &offset, nullptr));
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  std::vector<std::string_view> matches(std::string_view text) const {
    std::vector<std::string_view> out;
    for (size_t pos = 0; pos < text.size();) {
      const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), pos, PCRE2_ANCHORED,
                                    match_.get(), nullptr);
      if (found <= 0) return {};
      const size_t end = pcre2_get_ovector_pointer(match_.get())[1];
      out.push_back(text.substr(pos, end - pos));
      pos = end;
    }
    return out;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

TEST(PretokenizeAgainstPcre2, RandomStrings) {
  std::vector<std::pair<SplitRule, Regex>> patterns;
  for (SplitRule rule : {SplitRule::Qwen, SplitRule::Mistral, SplitRule::Tekken})
    patterns.emplace_back(rule, Regex(pattern_of(rule)));
  // Characters at which rules meet come often; the others from all classified ranges, plus marks and symbols.
  const std::u32string common = U"'''/aAǅʰԱsStTmMdDlLrReEvV\u017Fxé你  \t\r\n\n\u00a0\u3000\u008509½!.-_(\u0301🐱\u200d\u0000";
  std::mt19937 random(2);
  for (int round = 0; round < 200000; ++round) {
    std::string text;
    for (int n = 1 + random() % 14; n > 0; --n) {
      char32_t code = common[random() % common.size()];
      if (random() % 4 == 0) {
        const auto pick = [&](const auto& ranges) {
          const auto& range = ranges[random() % ranges.size()];
          return static_cast<char32_t>(range.first + random() % (range.last - range.first + 1));
        };
        code = random() % 2 == 0 ? pick(unicode_tables::kClasses) : pick(unicode_tables::kCasings);
      }
      append_utf8(text, code);
    }
    for (const auto& [rule, regex] : patterns)
      ASSERT_EQ(pretokenize(text, rule), regex.matches(text)) << "round " << round << ": " << text;
  }
}

}  // namespace
}  // namespace flux2
