#include <gtest/gtest.h>

#include "base/error.h"
#include "net/http.h"

namespace flux2 {
namespace {

TEST(NoHttp, ReportsThatItIsMissing) {
  EXPECT_FALSE(HttpClient::available());
  try {
    HttpClient().send({.url = "https://host/x"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Network);
    EXPECT_NE(std::string(e.what()).find("no HTTP client"), std::string::npos);
    EXPECT_NE(e.hint().plain().find("libcurl"), std::string::npos);
  }
}

}  // namespace
}  // namespace flux2
