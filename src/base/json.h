#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace flux2 {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  int max_depth = 64;
  bool refuse_duplicate_keys = false;  // otherwise one of two equal keys is kept silently
};

// Parses text that came from outside. Throws BadFile with the position of the first fault.
Json parse_json(std::string_view text, const JsonLimits& limits = {});
Json read_json(const std::filesystem::path& path);

std::string read_text_file(const std::filesystem::path& path);

}  // namespace flux2
