#include "server/http/request_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

#include <algorithm>
#include <array>

#include "server/http/errors.h"
#include "server/http/multipart_head.h"

namespace flux2 {

namespace http = boost::beast::http;

namespace {

constexpr size_t kRequestLine = 8 << 10;
constexpr size_t kChunkHead = 16 << 10;  // the line in front of a chunk, and the fields behind the last one

[[noreturn]] void refuse(int status, const char* code, const char* text) { throw HttpError(status, code, text); }

[[noreturn]] void refuse(boost::beast::error_code error) {
  if (error == http::error::header_limit) refuse(431, "headers_too_large", "The headers of the request are too large.");
  throw HttpError(400, "invalid_request", "This is not a valid HTTP request: " + error.message() + ".");
}

}  // namespace

struct RequestParser::State {
  http::request_parser<http::buffer_body> parser;
};

RequestParser::RequestParser(uint64_t header_bytes) : state_(std::make_unique<State>()) {
  state_->parser.header_limit(static_cast<std::uint32_t>(header_bytes));
  state_->parser.body_limit(boost::none);  // counted by the connection, which knows the limit only after the head
  state_->parser.eager(false);
}

RequestParser::~RequestParser() = default;

size_t RequestParser::read_head(std::string_view input) {
  size_t used = 0;
  if (!begun_)  // empty lines in front of a request are skipped: RFC 9112, 2.2
    while (input.substr(used).starts_with("\r\n")) used += 2;
  input.remove_prefix(used);
  if (input.empty()) return used;
  begun_ = begun_ || input != "\r";
  if (!begun_) return used;
  boost::beast::error_code error;
  used += state_->parser.put(boost::asio::buffer(input.data(), input.size()), error);
  if (error == http::error::need_more) {
    // Beast wants the whole line before it looks at it.
    if (input.size() >= kRequestLine && input.find('\n') == input.npos && state_->parser.get().target().empty())
      refuse(414, "uri_too_long", "The address of the request is too long.");
    return used;
  }
  if (error) refuse(error);
  if (has_head()) check_head();
  return used;
}

void RequestParser::check_head() const {
  const auto& head = state_->parser.get();
  if (head.method_string().size() + head.target().size() + 10 > kRequestLine)
    refuse(414, "uri_too_long", "The address of the request is too long.");
  size_t hosts = 0, encodings = 0, lengths = 0, fields = 0;
  for (const auto& field : head) {
    ++fields;
    hosts += field.name() == http::field::host ? 1 : 0;
    lengths += field.name() == http::field::content_length ? 1 : 0;
    if (field.name() == http::field::transfer_encoding) {
      ++encodings;
      // Beast ignores codings it does not know; the body would then be read as the next request.
      if (lower_case(std::string_view(field.value().data(), field.value().size())) != "chunked")
        refuse(501, "unsupported_encoding", "The only supported transfer encoding is \"chunked\".");
    }
  }
  if (fields > 128) refuse(431, "headers_too_large", "The request has more than 128 headers.");
  if (hosts > 1 || (hosts == 0 && !is_http_1_0())) refuse(400, "invalid_request", "A request must have exactly one Host header.");
  if (encodings > 1 || lengths > 1 || (encodings > 0 && (lengths > 0 || is_http_1_0())))
    refuse(400, "invalid_request", "The length of the request is given twice.");
}

size_t RequestParser::read_body(std::string_view input, std::string& out) {
  if (input.empty()) return 0;
  std::array<char, 16 << 10> chunk;
  auto& body = state_->parser.get().body();
  body.data = chunk.data();
  body.size = chunk.size();
  body.more = true;
  boost::beast::error_code error;
  const size_t used = state_->parser.put(boost::asio::buffer(input.data(), input.size()), error);
  out.append(chunk.data(), chunk.size() - body.size);
  body.data = nullptr;
  if (error == http::error::need_more) {
    if (used == 0 && input.size() > kChunkHead) refuse(400, "invalid_request", "A chunk of the request has no size.");
  } else if (error && error != http::error::need_buffer) {
    refuse(error);
  }
  return used;
}

bool RequestParser::has_head() const { return state_->parser.is_header_done(); }
bool RequestParser::is_done() const { return state_->parser.is_done(); }
bool RequestParser::keep_alive() const { return state_->parser.keep_alive(); }
bool RequestParser::is_http_1_0() const { return state_->parser.get().version() == 10; }

std::string RequestParser::target() const {
  const auto target = state_->parser.get().target();
  return std::string(target.data(), target.size());
}

std::optional<uint64_t> RequestParser::content_length() const {
  const auto length = state_->parser.content_length();
  return length ? std::optional<uint64_t>(*length) : std::nullopt;
}

bool RequestParser::has_body() const { return state_->parser.chunked() || content_length().value_or(0) > 0; }

void RequestParser::copy_head(ServerRequest& request) const {
  const auto& head = state_->parser.get();
  request.method = std::string(head.method_string().data(), head.method_string().size());
  for (const auto& field : head)
    request.headers.emplace_back(lower_case(std::string_view(field.name_string().data(), field.name_string().size())),
                                 std::string(field.value().data(), field.value().size()));
}

}  // namespace flux2
