#pragma once

#include <string>
#include <vector>

#include "app/config_file.h"
#include "base/limits.h"
#include "record/request_fields.h"

namespace flux2 {

const std::vector<std::string>& config_keys();  // in alphabetical order
[[noreturn]] void refuse_unknown_key(const std::string& key);
const Field* config_field(const std::string& key);       // the field a key sets; null for models.paths, styles and unknown keys
const LimitField* config_limit(const std::string& key);  // the limit that limits.NAME sets, or null
bool is_config_key(const std::string& key);

// Throws InvalidArgument, with the nearest key, if the file sets a key that does not exist or is not available yet.
void refuse_unknown_keys(const ConfigFile& file);

// What `config set` may write: the value of a key, checked. `literal` is its TOML.
void check_config_value(const std::string& key, const std::string& literal);

// Writes it into the user's configuration file; an empty literal removes the key. Throws InvalidArgument for unknown keys.
void change_config(const ConfigFile& config, const std::string& key, const std::string& literal);

}  // namespace flux2
