#include "server/http/websocket_frames.h"

#include <openssl/evp.h>

#include <array>
#include <span>

#include "base/base64.h"
#include "base/error.h"

namespace flux2 {
namespace {

constexpr size_t kLargestFrame = 64 << 10;

size_t byte_at(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

}  // namespace

WebSocketFrame read_client_frame(std::string_view input) {
  WebSocketFrame frame;
  if (input.size() < 2) return frame;
  const size_t first = byte_at(input, 0), second = byte_at(input, 1);
  check((first & 0x70) == 0, "A WebSocket frame uses an extension that was not agreed.");
  check((second & 0x80) != 0, "A WebSocket frame of a client must be masked.");
  frame.kind = static_cast<int>(first & 15);
  const bool control = frame.kind >= 8;
  check(frame.kind <= 2 || (frame.kind >= 8 && frame.kind <= 10), "A WebSocket frame is of an unknown kind.");
  size_t size = second & 0x7f, at = 2;
  check(!control || (size <= 125 && (first & 0x80) != 0), "A WebSocket control frame is too long or in pieces.");
  const size_t wide = size == 126 ? 2 : size == 127 ? 8 : 0;
  if (wide > 0) {
    if (input.size() < at + wide) return frame;
    size = 0;
    for (size_t i = 0; i < wide; ++i) {
      check(size <= kLargestFrame, "A WebSocket frame is too long.");
      size = size << 8 | byte_at(input, at + i);
    }
    at += wide;
  }
  check(size <= kLargestFrame, "A WebSocket frame is too long.");
  if (input.size() < at + 4 + size) return frame;
  frame.content.resize(size);
  for (size_t i = 0; i < size; ++i) frame.content[i] = static_cast<char>(byte_at(input, at + 4 + i) ^ byte_at(input, at + i % 4));
  frame.used = at + 4 + size;
  return frame;
}

std::string server_frame(WebSocketFrame::Kind kind, std::string_view content) {
  std::string out(1, static_cast<char>(0x80 | kind));
  const size_t size = content.size(), wide = size < 126 ? 0 : size < 65536 ? 2 : 8;
  out += static_cast<char>(wide == 0 ? size : wide == 2 ? 126 : 127);
  for (size_t i = wide; i-- > 0;) out += static_cast<char>(size >> (8 * i) & 0xff);
  return out.append(content);
}

std::string websocket_accept(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  std::array<std::byte, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  require(EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &size, EVP_sha1(), nullptr) == 1,
          "SHA-1 failed");
  return base64_encode(std::span(digest).first(size));
}

}  // namespace flux2
