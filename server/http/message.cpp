#include "server/http/message.h"

#include "base/error.h"

namespace flux2 {
namespace {

const std::string* value_named(const std::vector<std::pair<std::string, std::string>>& pairs, std::string_view name) {
  for (const auto& [key, value] : pairs)
    if (key == name) return &value;
  return nullptr;
}

}  // namespace

std::string_view ServerRequest::header(std::string_view name) const {
  const std::string* value = value_named(headers, name);
  return value ? std::string_view(*value) : std::string_view();
}

std::optional<std::string> ServerRequest::argument(std::string_view name) const {
  const std::string* value = value_named(query, name);
  return value ? std::optional(*value) : std::nullopt;
}

const std::string& ServerRequest::parameter(std::string_view name) const {
  const std::string* value = value_named(captured, name);
  require(value != nullptr, "the route of {} captures no {{{}}}", path, name);
  return *value;
}

HttpResponse HttpResponse::json(const Json& value, int status) {
  HttpResponse response;
  response.status = status;
  // Texts of clients may come back in answers; what is not UTF-8 in them becomes U+FFFD.
  response.body = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return response;
}

HttpResponse HttpResponse::empty(int status) {
  HttpResponse response;
  response.status = status;
  response.content_type.clear();
  return response;
}

}  // namespace flux2
