#include "net/http.h"

#include <algorithm>
#include <cctype>

namespace flux2 {

namespace {

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

std::optional<std::string> HttpAnswer::header(std::string_view name) const {
  for (const HttpHeader& h : headers)
    if (same_name(h.name, name)) return h.value;
  return std::nullopt;
}

HttpSettings http_settings(const std::function<const char*(const char*)>& environment) {
  const auto first = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const char* value = environment ? environment(name) : nullptr; value && *value) return std::string(value);
    return std::string();
  };
  HttpSettings s;
  s.https_proxy = first({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
  s.http_proxy = first({"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"});
  s.no_proxy = first({"no_proxy", "NO_PROXY"});
  s.ca_file = first({"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"});
  s.ca_folder = first({"SSL_CERT_DIR"});
  return s;
}

}  // namespace flux2
