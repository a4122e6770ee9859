#include "net/hide_token.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(HideToken, ReplacesEveryOccurrence) {
  EXPECT_EQ(hide_token("hf_abc and https://x/?t=hf_abc", "hf_abc"), "(token) and https://x/?t=(token)");
  EXPECT_EQ(hide_token("aaaa", "aa"), "(token)(token)");
  EXPECT_EQ(hide_token("nothing here", "hf_abc"), "nothing here");
  EXPECT_EQ(hide_token("no token was sent", ""), "no token was sent");
}

TEST(HideToken, CleansErrorsAndTheirHints) {
  try {
    hiding_token("hf_abc", [] {
      throw Error(ErrorCode::NotFound, "there is no hf_abc", Hint("see hf_abc or {0}", {set_option("token", "hf_abc")}));
    });
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
    EXPECT_STREQ(e.what(), "there is no (token)");
    EXPECT_EQ(e.hint().plain().find("hf_abc"), std::string::npos) << e.hint().plain();
  }
  EXPECT_EQ(hiding_token("hf_abc", [] { return 3; }), 3);
}

}  // namespace
}  // namespace flux2
