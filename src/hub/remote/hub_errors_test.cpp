#include "hub/remote/hub_errors.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

struct Case {
  int status;
  const char *code, *message, *token;
  ErrorCode kind;
  const char *says, *advises;
};

// The table of the hub's refusals.
TEST(HubErrors, EachHasItsMessage) {
  const Case cases[] = {
      {404, "RevisionNotFound", "", "", ErrorCode::NotFound, "o/m has no revision v9", "https://hub/o/m/tree/main"},
      {404, "EntryNotFound", "", "", ErrorCode::NotFound, "o/m has no file f.gguf", "https://hub/o/m/tree/v9"},
      {404, "RepoNotFound", "", "", ErrorCode::NotFound, "is not known to https://hub", "check owner and name"},
      {401, "GatedRepo", "", "", ErrorCode::Network, "o/m is gated: its licence",
       "accept it at https://hub/o/m, then set HF_TOKEN"},
      {403, "GatedRepo", "", "hf_abc", ErrorCode::Network, "no access to it yet", "https://hub/o/m"},
      {401, "", "Invalid credentials in Authorization header", "hf_abc", ErrorCode::Network, "wrong or has expired", "HF_TOKEN"},
      {401, "RepoNotFound", "Repository not found", "", ErrorCode::Network, "does not exist or is private", "HF_TOKEN"},
      {401, "", "", "hf_abc", ErrorCode::Network, "does not exist or is private", "the token's account"},
      {403, "", "Access to this resource is disabled.", "hf_abc", ErrorCode::Network, "disabled by the hub", "another source"},
      {403, "", "", "hf_abc", ErrorCode::Network, "this token may not read o/m", "read access to public gated repositories"},
      {429, "", "", "", ErrorCode::Network, "too many requests", "HF_TOKEN"},
      {418, "", "I am a teapot", "", ErrorCode::Network, "answers 418 for f.gguf (the hub says: I am a teapot)", "later"},
  };
  for (const Case& c : cases) {
    HttpAnswer answer{.status = c.status, .url = "https://hub/x"};
    if (*c.code) answer.headers.push_back({"X-Error-Code", c.code});
    if (*c.message) answer.headers.push_back({"X-Error-Message", c.message});
    try {
      fail_hub(answer, {"https://hub", "o/m", "v9", "f.gguf", c.token});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), c.kind) << c.says;
      EXPECT_NE(std::string(e.what()).find(c.says), std::string::npos) << e.what();
      EXPECT_NE(e.hint().plain().find(c.advises), std::string::npos) << e.hint().plain();
    }
  }
}

TEST(HubErrors, UseTheBodysMessageWithoutTheToken) {
  HttpAnswer answer{.status = 401, .url = "https://hub/x", .body = R"({"error":"Invalid credentials hf_abc"})"};
  try {
    fail_hub(answer, {"https://hub", "o/m", "main", "", "hf_abc"});
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Invalid credentials (token)"), std::string::npos) << e.what();
    EXPECT_EQ((e.what() + e.hint().plain()).find("hf_abc"), std::string::npos);
  }
}

}  // namespace
}  // namespace flux2
