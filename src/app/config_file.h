#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/log.h"

namespace flux2 {

// A flux2.toml or config.toml, flattened: "generate.steps" → {"20"}; a list has several values.
struct ConfigFile {
  std::filesystem::path path;
  std::map<std::string, std::vector<std::string>> values;
  // True for the flux2.toml of the current folder, which anybody may have written. `values` then contains only what such
  // a file may set (Field::project), and `refused` the other keys.
  bool is_project = false;
  std::vector<std::string> refused = {};

  const std::string* find(const std::string& key) const;
};

// Empty if the file does not exist. Throws BadFile, with the line, if it cannot be read.
ConfigFile read_config(const std::filesystem::path& path, const Log& log);

// The same for the flux2.toml of a project.
ConfigFile read_project_config(const std::filesystem::path& path, const Log& log);

// toml_config.cpp or toml_missing.cpp: with toml++ or without.
bool toml_available();
std::map<std::string, std::vector<std::string>> parse_toml(std::string_view text);

// A whole TOML document as JSON: tables, lists, texts, numbers, true and false.
Json json_of_toml(std::string_view text);

// The text of a file with one value changed, or removed if `literal` is empty. Comments and everything else are kept.
std::string edit_toml(std::string_view text, std::string_view section, std::string_view key, std::string_view literal);

// A value typed by the user, written as TOML: numbers, true, false and lists unchanged, everything else as a string.
std::string toml_literal(std::string_view value);

}  // namespace flux2
