#include "server/http/message.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "server/http/exchange.h"

namespace flux2 {
namespace {

TEST(ServerRequest, FindsHeadersArgumentsAndParameters) {
  ServerRequest request;
  request.headers = {{"host", "localhost"}, {"accept", "a"}, {"accept", "b"}};
  request.query = {{"limit", "5"}, {"empty", ""}, {"limit", "6"}};
  request.captured = {{"id", "42"}};
  EXPECT_EQ(request.header("host"), "localhost");
  EXPECT_EQ(request.header("accept"), "a");
  EXPECT_EQ(request.header("cookie"), "");
  EXPECT_EQ(request.argument("limit"), "5");
  EXPECT_EQ(request.argument("empty"), "");
  EXPECT_FALSE(request.argument("cursor"));
  EXPECT_EQ(request.parameter("id"), "42");
  EXPECT_THROW(request.parameter("name"), Error);
}

TEST(HttpResponse, JsonReplacesWhatIsNotUtf8) {
  const HttpResponse response = HttpResponse::json({{"name", "a\xff"}}, 201);
  EXPECT_EQ(response.status, 201);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(response.body, "{\"name\":\"a\xEF\xBF\xBD\"}");
  EXPECT_EQ(HttpResponse::empty().status, 204);
  EXPECT_EQ(HttpResponse::empty().content_type, "");
}

struct RecordingChannel : EventStream::Channel {
  std::vector<std::string> sent;
  bool open = true;
  bool send(std::string text, EventStream::Keep) override {
    if (open) sent.push_back(std::move(text));
    return open;
  }
  void close() override { open = false; }
  void on_closed(std::function<void()>) override {}
};

TEST(EventStream, WritesFieldsOnLinesOfTheirOwn) {
  const auto channel = std::make_shared<RecordingChannel>();
  const EventStream stream(channel);
  EXPECT_TRUE(stream.event(7, "progress", "{\"step\":1}"));
  EXPECT_TRUE(stream.event(0, "", "a\nb\r\nc\rid: 9"));
  EXPECT_TRUE(stream.event(1, "x\nid: 5", ""));
  EXPECT_TRUE(stream.comment("keep-alive"));
  EXPECT_EQ(channel->sent, (std::vector<std::string>{"id: 7\nevent: progress\ndata: {\"step\":1}\n\n",
                                                     "data: a\ndata: b\ndata: c\ndata: id: 9\n\n", "id: 1\nevent: x\ndata: \n\n",
                                                     ": keep-alive\n\n"}));
  stream.close();
  EXPECT_FALSE(stream.comment("late"));
}

}  // namespace
}  // namespace flux2
