#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/http/errors.h"

namespace flux2 {

// Reads the members of a JSON body one by one and collects everything that is wrong with them. A member that is absent or null
// gives nothing; is_null() tells the two apart.
class BodyMembers {
 public:
  // Other members than these are refused.
  BodyMembers(const Json& body, std::initializer_list<const char*> known);

  bool has(const char* name) const { return body_.contains(name); }
  bool is_null(const char* name) const { return has(name) && body_[name].is_null(); }
  std::optional<std::string> text(const char* name, size_t most_bytes);
  std::optional<bool> flag(const char* name);
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high);
  std::optional<std::vector<std::string>> texts(const char* name, size_t most, size_t most_bytes);

  void wrong(const std::string& path, const std::string& message) { problems_.push_back({path, message}); }
  void check_all() const;  // throws HttpError 400 that lists all problems

 private:
  const Json* find(const char* name) const;

  const Json& body_;
  std::vector<HttpError::FieldProblem> problems_;
};

// The arguments of a query. They throw HttpError 400 that names the argument.
std::optional<int64_t> integer_argument(const ServerRequest& request, std::string_view name, int64_t low, int64_t high);
std::optional<bool> flag_argument(const ServerRequest& request, std::string_view name);  // 1, 0, true or false
std::optional<int64_t> time_argument(const ServerRequest& request,
                                     std::string_view name);  // 2026-11-16 or RFC 3339; milliseconds

}  // namespace flux2
