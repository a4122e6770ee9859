#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace flux2 {

// The head and body of one HTTP/1.1 request from bytes that arrive in pieces: Boost.Beast's parser with the rules it leaves to
// its users. What it refuses is an HttpError with the status to answer; the connection must end then, since nobody knows where
// the next request begins.
class RequestParser {
 public:
  explicit RequestParser(uint64_t header_bytes);
  ~RequestParser();

  // Both return how many bytes they used. If that is 0, more bytes are needed.
  size_t read_head(std::string_view input);                    // until has_head()
  size_t read_body(std::string_view input, std::string& out);  // appends to `out`, until is_done()

  bool has_head() const;
  bool is_done() const;
  bool has_begun() const { return begun_; }

  // Of the head:
  std::string target() const;
  void copy_head(ServerRequest& request) const;  // method and headers; the target is not decoded here
  bool keep_alive() const;
  bool is_http_1_0() const;
  std::optional<uint64_t> content_length() const;  // none: no body, or chunked
  bool has_body() const;

 private:
  void check_head() const;

  struct State;
  std::unique_ptr<State> state_;
  bool begun_ = false;
};

}  // namespace flux2
