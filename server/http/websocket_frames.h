#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace flux2 {

// Frames of RFC 6455, as far as a server needs them that sends texts and expects none.
struct WebSocketFrame {
  enum Kind : int { Continuation = 0, Text = 1, Binary = 2, Close = 8, Ping = 9, Pong = 10 };
  int kind = Text;
  std::string content;
  size_t used = 0;  // bytes of the input; 0: the frame is not complete
};

// The first frame of what a client sent. Throws InvalidArgument for what the protocol forbids, and for frames above 64 KiB.
WebSocketFrame read_client_frame(std::string_view input);

std::string server_frame(WebSocketFrame::Kind kind, std::string_view content);

// The value of Sec-WebSocket-Accept.
std::string websocket_accept(std::string_view key);

}  // namespace flux2
