#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/http/key_limits.h"

namespace flux2 {

// One part of a multipart form, in the order in which it arrived. Small parts are in `data`. A large one is in a file below the
// data folder, which the exchange deletes at its end unless somebody moved it away.
struct FormPart {
  std::string name, file_name, content_type;  // as the client claims; nothing relies on the last two
  std::string data;
  std::filesystem::path file = {};  // empty when the content is in `data`
  uint64_t bytes = 0;
  bool is_file = false;  // the part has a file name
};

using Headers = std::vector<std::pair<std::string, std::string>>;  // names in lower case

// A request that was read completely. (flux2::HttpRequest of net/http.h is what our client sends.) The path is percent-decoded,
// begins with '/', and has no "..", no NUL and no query.
struct ServerRequest {
  std::string method, path;
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
  Headers headers;
  std::string body;                                           // empty for a multipart form
  std::vector<FormPart> parts;                                // of a multipart form
  std::vector<std::pair<std::string, std::string>> captured;  // the {names} of the route's pattern
  std::string id;                                             // names this exchange in answers and logs
  std::string remote_address;                                 // "127.0.0.1"; empty on a Unix socket
  bool is_multipart = false;
  Caller caller;  // who sends it, once that was checked

  std::string_view header(std::string_view name) const;              // "" if absent; name in lower case
  std::optional<std::string> argument(std::string_view name) const;  // of the query, the first of that name
  const std::string& parameter(std::string_view name) const;         // of the path; the route must capture it
};

// An answer: a text in memory or a file. `content_type` becomes a header.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::filesystem::path file = {};  // sent instead of `body`, with ranges
  // Sent instead of `body`: called on pool threads, one call after the other, until `pieces_size` bytes were returned. If it
  // throws or ends early, the connection is closed, and the client sees that bytes are missing.
  std::function<std::string()> pieces = {};
  uint64_t pieces_size = 0;
  std::string etag = {};  // with If-None-Match the answer becomes 304
  Headers headers = {};

  static HttpResponse json(const Json& value, int status = 200);
  static HttpResponse empty(int status = 204);
};

}  // namespace flux2
