#include "hub/remote/hub_settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "net/url.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

class Variables {
 public:
  explicit Variables(const std::function<const char*(const char*)>& lookup) : lookup_(lookup) {}

  std::string text(const char* name) const {
    const char* value = lookup_ ? lookup_(name) : nullptr;
    return value ? value : "";
  }

  bool is_on(const char* name) const {
    std::string value = text(name);
    std::ranges::transform(value, value.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
  }

  double seconds(const char* name, double otherwise) const {
    const std::string value = text(name);
    if (value.empty()) return otherwise;
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    check(*end == '\0' && number > 0 && number < 1e6, "{} is {}; it must be a number of seconds", name, value);
    return number;
  }

  // ~ at the beginning and $NAME, ${NAME} anywhere are replaced; an unset name stays as it is written.
  fs::path path(const char* name) const {
    std::string value = text(name), out;
    if (value == "~" || value.starts_with("~/")) value = text("HOME") + value.substr(1);
    for (size_t i = 0; i < value.size();) {
      const bool braced = value.compare(i, 2, "${") == 0;
      const size_t begin = i + (braced ? 2 : 1);
      size_t end = begin;
      if (value[i] == '$')
        while (end < value.size() && (std::isalnum(static_cast<unsigned char>(value[end])) || value[end] == '_')) ++end;
      const bool closed = !braced || (end < value.size() && value[end] == '}');
      const std::string found = value[i] == '$' && closed ? text(value.substr(begin, end - begin).c_str()) : "";
      if (found.empty()) {
        out += value[i++];
      } else {
        out += found;
        i = end + (braced ? 1 : 0);
      }
    }
    return out;
  }

 private:
  const std::function<const char*(const char*)>& lookup_;
};

fs::path hub_home(const Variables& v) {
  if (fs::path home = v.path("HF_HOME"); !home.empty()) return home;
  if (const fs::path cache = v.path("XDG_CACHE_HOME"); !cache.empty()) return cache / "huggingface";
  const fs::path home = v.path("HOME");
  return home.empty() ? fs::path() : home / ".cache/huggingface";
}

std::string stored_token(const Variables& v) {
  fs::path file = v.path("HF_TOKEN_PATH");
  if (const fs::path home = hub_home(v); file.empty() && !home.empty()) file = home / "token";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored) || fs::file_size(file, ignored) > 4096) return {};
  try {
    return std::string(trimmed(read_text_file(file)));
  } catch (const Error&) {
    return {};  // not readable for us: as if it were not there
  }
}

std::string find_token(const Variables& v) {
  if (v.is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return {};
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (std::string token(trimmed(v.text(name))); !token.empty()) return token;
  return stored_token(v);
}

}  // namespace

HubSettings hub_settings(const std::function<const char*(const char*)>& environment, const std::string& token) {
  const Variables v(environment);
  HubSettings s;
  if (const std::string endpoint = v.text("HF_ENDPOINT"); !endpoint.empty()) s.endpoint = endpoint;
  while (s.endpoint.ends_with('/')) s.endpoint.pop_back();
  in_context("HF_ENDPOINT", [&] { parse_url(s.endpoint); });
  s.token = token.empty() ? find_token(v) : std::string(trimmed(token));
  s.cache = v.path("HF_HUB_CACHE");
  if (s.cache.empty()) s.cache = v.path("HUGGINGFACE_HUB_CACHE");
  if (const fs::path home = hub_home(v); s.cache.empty() && !home.empty()) s.cache = home / "hub";
  s.offline = v.is_on("HF_HUB_OFFLINE") || v.is_on("TRANSFORMERS_OFFLINE");
  s.symlinks = !v.is_on("HF_HUB_DISABLE_SYMLINKS");
  s.transfer_timeout_s = v.seconds("HF_HUB_DOWNLOAD_TIMEOUT", 10);
  s.metadata_timeout_s = v.seconds("HF_HUB_ETAG_TIMEOUT", 10);
  s.http = http_settings(environment);
  return s;
}

std::string HubSettings::token_for(const std::string& url) const {
  const Url to = parse_url(url);
  return to.origin() == parse_url(endpoint).origin() && (to.secure() || to.loopback()) ? token : std::string();
}

}  // namespace flux2
