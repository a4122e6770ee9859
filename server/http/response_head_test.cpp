#include "server/http/response_head.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

TEST(ResponseHead, NoTextAddsAHeader) {
  EXPECT_EQ(head_text(404, {{"a", "b\r\nc: d"}, {"e", "tab\there"}}),
            "HTTP/1.1 404 Not Found\r\na: b  c: d\r\ne: tab\there\r\n\r\n");
}

TEST(ResponseHead, Dates) { EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT"); }

TEST(ResponseHead, Ranges) {
  using R = std::optional<ByteRange>;
  EXPECT_EQ(range_of("bytes=0-3", 10), R({0, 4}));
  EXPECT_EQ(range_of("bytes=5-", 10), R({5, 10}));
  EXPECT_EQ(range_of("bytes=5-999", 10), R({5, 10}));
  EXPECT_EQ(range_of("bytes=9-18446744073709551615", 10), R({9, 10}));
  EXPECT_EQ(range_of("bytes=-3", 10), R({7, 10}));
  EXPECT_EQ(range_of("bytes=-30", 10), R({0, 10}));
  EXPECT_EQ(range_of("bytes=10-", 10), R(ByteRange{}));
  EXPECT_EQ(range_of("bytes=-0", 10), R(ByteRange{}));
  for (const char* header : {"", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=3-1", "bytes=0-1,3-4", "lines=0-1", "bytes=1",
                             "bytes=-1-2", "bytes=99999999999999999999-"})
    EXPECT_EQ(range_of(header, 10), std::nullopt) << header;
  EXPECT_EQ(range_of("bytes=0-3", 0), std::nullopt);
}

TEST(ResponseHead, Tags) {
  EXPECT_TRUE(names_etag("\"a\", W/\"b\"", "\"b\""));
  EXPECT_TRUE(names_etag("\"a\"", "W/\"a\""));
  EXPECT_TRUE(names_etag("*", "\"a\""));
  EXPECT_FALSE(names_etag("\"a\"", "\"b\""));
  EXPECT_FALSE(names_etag("", "\"b\""));
  EXPECT_FALSE(names_etag("*", ""));
}

class PreparedFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::path(testing::TempDir()) / ("prepared_" + std::to_string(::getpid()));
    std::ofstream(path_) << "0123456789";
  }
  void TearDown() override { fs::remove(path_); }

  PreparedAnswer answer(Headers headers, const std::string& method = "GET") const {
    ServerRequest request;
    request.method = method;
    request.headers = std::move(headers);
    HttpResponse response;
    response.file = path_;
    response.content_type = "image/png";
    return prepare_answer(request, response);
  }
  static std::string header(const PreparedAnswer& answer, std::string_view name) {
    for (const auto& [key, value] : answer.headers)
      if (key == name) return value;
    return "";
  }

  fs::path path_;
};

TEST_F(PreparedFile, WholePartAndUnchanged) {
  const PreparedAnswer whole = answer({});
  const std::string etag = header(whole, "etag");
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.end, 10u);
  EXPECT_EQ(header(whole, "content-length"), "10");
  EXPECT_EQ(header(whole, "accept-ranges"), "bytes");
  EXPECT_EQ(header(whole, "content-type"), "image/png");

  const PreparedAnswer part = answer({{"range", "bytes=2-4"}});
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.begin, 2u);
  EXPECT_EQ(part.end, 5u);
  EXPECT_EQ(header(part, "content-range"), "bytes 2-4/10");
  EXPECT_EQ(header(part, "content-length"), "3");

  EXPECT_EQ(answer({{"range", "bytes=2-4"}, {"if-range", etag}}).status, 206);
  EXPECT_EQ(answer({{"range", "bytes=2-4"}, {"if-range", "\"other\""}}).status, 200);
  EXPECT_EQ(answer({{"range", "bytes=50-"}}).status, 416);
  EXPECT_EQ(header(answer({{"range", "bytes=50-"}}), "content-range"), "bytes */10");
  EXPECT_EQ(answer({{"if-none-match", etag}}).status, 304);
  EXPECT_EQ(header(answer({{"if-none-match", etag}}), "content-length"), "");
  EXPECT_EQ(answer({{"if-none-match", etag}}, "POST").status, 200);
  const PreparedAnswer head = answer({}, "HEAD");
  EXPECT_EQ(header(head, "content-length"), "10");
  EXPECT_EQ(head.file, nullptr);
}

TEST_F(PreparedFile, AMissingFileIsAnError) {
  fs::remove(path_);
  EXPECT_THROW(answer({}), Error);
}

}  // namespace
}  // namespace flux2
