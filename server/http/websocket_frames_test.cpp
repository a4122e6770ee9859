#include "server/http/websocket_frames.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

std::string client_frame(int first, const std::string& content) {
  std::string out(1, static_cast<char>(first));
  if (content.size() < 126) {
    out += static_cast<char>(0x80 | content.size());
  } else {
    out += static_cast<char>(0x80 | 126);
    out += static_cast<char>(content.size() >> 8);
    out += static_cast<char>(content.size() & 0xff);
  }
  out += "\x01\x02\x03\x04";
  for (size_t i = 0; i < content.size(); ++i) out += static_cast<char>(content[i] ^ static_cast<char>(i % 4 + 1));
  return out;
}

TEST(WebSocket, AnswersTheKeyOfTheStandard) {
  EXPECT_EQ(websocket_accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

TEST(WebSocket, ReadsFramesInPieces) {
  for (const size_t size : {size_t{0}, size_t{5}, size_t{125}, size_t{126}, size_t{5000}}) {
    const std::string content(size, 'q'), bytes = client_frame(0x81, content);
    for (size_t n = 0; n < bytes.size(); ++n) EXPECT_EQ(read_client_frame(std::string_view(bytes).substr(0, n)).used, 0u);
    const WebSocketFrame frame = read_client_frame(bytes + "more");
    EXPECT_EQ(frame.used, bytes.size());
    EXPECT_EQ(frame.kind, WebSocketFrame::Text);
    EXPECT_EQ(frame.content, content);
  }
}

TEST(WebSocket, RefusesWhatTheProtocolForbids) {
  EXPECT_THROW(read_client_frame(std::string("\x81\x01x", 3)), Error) << "not masked";
  EXPECT_THROW(read_client_frame("\xc1\x80"), Error) << "extension";
  EXPECT_THROW(read_client_frame("\x83\x80"), Error) << "unknown kind";
  EXPECT_THROW(read_client_frame("\x89\xfe"), Error) << "long ping";
  EXPECT_THROW(read_client_frame("\x09\x80"), Error) << "ping in pieces";
  EXPECT_THROW(read_client_frame("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff"), Error) << "huge";
}

TEST(WebSocket, WritesLengths) {
  EXPECT_EQ(server_frame(WebSocketFrame::Text, "abc"),
            "\x81\x03"
            "abc");
  EXPECT_EQ(server_frame(WebSocketFrame::Text, std::string(300, 'x')).substr(0, 4), std::string("\x81\x7e\x01\x2c", 4));
  EXPECT_EQ(server_frame(WebSocketFrame::Text, std::string(70000, 'x')).substr(0, 10),
            std::string("\x81\x7f\0\0\0\0\0\x01\x11\x70", 10));
}

}  // namespace
}  // namespace flux2
