#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/limits.h"

namespace flux2 {

using Json = nlohmann::ordered_json;

// Parses text that came from outside. Throws BadFile with the position of the first fault, or when a limit is exceeded. Time and
// memory grow linearly with the text, whatever it contains.
Json parse_json(std::string_view text, const JsonLimits& limits = {});
Json read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

// A configuration that belongs to a model. Its limits are fixed: no real one comes near them.
Json read_model_json(const std::filesystem::path& path);

std::optional<Json> try_parse_json(std::string_view text, const JsonLimits& limits = {});  // nothing if it is not valid

// Sets `value` to object[key]. Leaves it when the object has no such key or null there. Throws BadFile, naming the key, when the
// object is no object, or the member has another type or does not fit.
void read_member(const Json& object, const char* key, std::string& value);
void read_member(const Json& object, const char* key, bool& value);
void read_member(const Json& object, const char* key, int& value);
void read_member(const Json& object, const char* key, int64_t& value);
void read_member(const Json& object, const char* key, float& value);
void read_member(const Json& object, const char* key, double& value);

// The whole content of a regular file. A larger file than allowed is refused before it is read.
std::string read_text_file(const std::filesystem::path& path, const TextLimits& limits = {});

}  // namespace flux2
