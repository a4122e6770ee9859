#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace flux2 {

// One key of the configuration file, as clients see it.
struct ServerSetting {
  std::string key;         // "serve.max-batch"
  Json value, fallback;    // null: not set; the default where it is known
  std::string origin;      // "command", "env", "file" or "default"
  bool is_secret = false;  // clients learn only whether it is set
};

// Where settings are kept. The front end that started the server knows; it checks values as well.
struct SettingsFile {
  std::function<std::vector<ServerSetting>()> list;
  // Writes a value, or removes the key for null. Throws InvalidArgument for a value that the key cannot have.
  std::function<void(const std::string&key, const Json&value)> check, write;
};

}  // namespace flux2
