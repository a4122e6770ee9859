#include <fmt/format.h>
#include <toml++/toml.h>

#include "app/config_file.h"
#include "base/error.h"

namespace flux2 {

namespace {

std::string text_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  if (const auto integer = node.value_exact<int64_t>()) return std::to_string(*integer);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  fail(ErrorCode::BadFile, "line {}: only strings, numbers, true and false are supported", node.source().begin.line);
}

void flatten(const toml::table& table, const std::string& prefix, std::map<std::string, std::vector<std::string>>& values) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      flatten(*inner, name + ".", values);
    } else if (const toml::array* list = node.as_array()) {
      auto& items = values[name];
      for (const toml::node& item : *list) items.push_back(text_of(item));
    } else {
      values[name] = {text_of(node)};
    }
  }
}

}  // namespace

bool toml_available() { return true; }

std::map<std::string, std::vector<std::string>> parse_toml(std::string_view text) {
  try {
    std::map<std::string, std::vector<std::string>> values;
    flatten(toml::parse(text), "", values);
    return values;
  } catch (const toml::parse_error& e) {
    fail(ErrorCode::BadFile, "line {}: {}", e.source().begin.line, e.description());
  }
}

}  // namespace flux2
