#include "server/http/request_parser.h"

#include <gtest/gtest.h>

#include "server/http/errors.h"

namespace flux2 {
namespace {

using std::string_literals::operator""s;  // keeps NUL characters

// Reads a request in pieces; returns "METHOD target [header=value…] body", or the status of the refusal.
std::string parsed(std::string_view text, size_t piece) {
  try {
    RequestParser parser(16 << 10);
    std::string input, body;
    size_t at = 0;
    while (!parser.is_done()) {
      const size_t used = parser.has_head() ? parser.read_body(input, body) : parser.read_head(input);
      input.erase(0, used);
      if (used > 0 && !input.empty()) continue;
      if (parser.is_done()) break;
      if (used > 0) continue;
      if (at >= text.size()) return "incomplete";
      input += text.substr(at, piece);
      at += piece;
    }
    ServerRequest request;
    parser.copy_head(request);
    std::string out = request.method + " " + parser.target();
    for (const auto& [name, value] : request.headers) out += " " + name + "=" + value;
    return out + " [" + body + "]" + (parser.keep_alive() ? "" : " close");
  } catch (const HttpError& e) {
    return std::to_string(e.status);
  }
}

TEST(RequestParser, ReadsRequestsInAnyPieces) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / host=h []"},
      {"\r\n\r\nGET /a?b HTTP/1.1\r\nhOsT:h\r\n\r\n", "GET /a?b host=h []"},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", "POST / host=h content-length=5 [hello]"},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
       "POST / host=h transfer-encoding=chunked [hello]"},
      {"GET / HTTP/1.0\r\n\r\n", "GET / [] close"},
      {"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "GET / host=h connection=close [] close"},
  };
  for (const auto& [text, expected] : cases)
    for (size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(parsed(text, piece), expected) << text << piece;
}

TEST(RequestParser, RefusesBrokenRequests) {
  const std::string host = "Host: h\r\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"GET / HTTP/1.1\r\n\r\n", "400"},                     // no host
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", "400"},  // two hosts
      {"GET / HTTP/2.0\r\n" + host + "\r\n", "400"},
      {"GET  / HTTP/1.1\r\n" + host + "\r\n", "400"},
      {"GET / HTTP/1.1\n" + host + "\r\n", "400"},  // bare LF
      {"GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n"s, "400"},  // NUL
      {"GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n"s, "400"},
      {"GET / HTTP/1.1\r\n" + host + "No colon\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\n" + host + "Sp ace: x\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1x\r\n\r\nx", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", "501"},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(40000, 'x'), "400"},
      {"GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n" + host + "\r\n", "414"},
      {"GET / HTTP/1.1\r\n" + host + "X: " + std::string(17000, 'a') + "\r\n\r\n", "431"},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"},  // TLS to a plain port
  };
  for (const auto& [text, expected] : cases)
    for (const size_t piece : {size_t{1}, size_t{1000}, text.size()})
      EXPECT_EQ(parsed(text, piece), expected) << text.substr(0, 90);
  std::string many = "GET / HTTP/1.1\r\n" + host;
  for (int i = 0; i < 200; ++i) many += "x: y\r\n";
  EXPECT_EQ(parsed(many + "\r\n", 100), "431");
}

}  // namespace
}  // namespace flux2
