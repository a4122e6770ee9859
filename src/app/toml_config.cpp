#include <fmt/format.h>
#include <toml++/toml.h>

#include <cctype>

#include "app/config_file.h"
#include "base/error.h"
#include "base/text.h"

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

// Every part of a dotted key is a table inside the one before it, which the library takes apart by recursion. Real keys have two
// or three parts. A dot counts where a key can have one: behind a letter, a digit, `_`, `-` or a quote.
void check_keys(std::string_view text) {
  constexpr int kMostParts = 200;
  int dots = 0;
  size_t line = 1;
  char before = '\n';
  for (const char c : text) {
    const auto letter = [](char x) {
      return std::isalnum(static_cast<unsigned char>(x)) || x == '_' || x == '-' || x == '"' || x == '\'';
    };
    if (c == '\n') dots = 0, ++line;
    else if (c == '.' && letter(before)) ++dots;
    else if (!letter(c) && c != '.' && c != ' ' && c != '\t') dots = 0;
    if (dots >= kMostParts) fail(ErrorCode::BadFile, "line {}: a key has more than {} parts", line, kMostParts);
    if (c != ' ' && c != '\t') before = c;
  }
}

// The part of the library's message after the name of the grammar rule: "expected '=', saw 'x'".
std::string fault_of(const toml::parse_error& e) {
  const std::string_view words = e.description();
  const size_t colon = words.find(": ");
  return printable(colon == words.npos ? words : words.substr(colon + 2));
}

}  // namespace

bool toml_available() { return true; }

namespace {

Json json_of_node(const toml::node& node) {
  if (const toml::table* table = node.as_table()) {
    Json object = Json::object();
    for (const auto& [key, value] : *table) object[std::string(key.str())] = json_of_node(value);
    return object;
  }
  if (const toml::array* list = node.as_array()) {
    Json array = Json::array();
    for (const toml::node& value : *list) array.push_back(json_of_node(value));
    return array;
  }
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const auto integer = node.value_exact<int64_t>()) return *integer;
  if (const auto number = node.value_exact<double>()) return *number;
  fail(ErrorCode::BadFile, "line {}: dates and times are not supported", node.source().begin.line);
}

}  // namespace

Json json_of_toml(std::string_view text) {
  try {
    check_keys(text);
    return json_of_node(toml::parse(text));
  } catch (const toml::parse_error& e) {
    fail(ErrorCode::BadFile, "line {}, column {}: not valid TOML: {}", e.source().begin.line, e.source().begin.column,
         fault_of(e));
  }
}

std::map<std::string, std::vector<std::string>> parse_toml(std::string_view text) {
  try {
    check_keys(text);
    std::map<std::string, std::vector<std::string>> values;
    flatten(toml::parse(text), "", values);
    return values;
  } catch (const toml::parse_error& e) {
    fail(ErrorCode::BadFile, "line {}, column {}: not valid TOML: {}", e.source().begin.line, e.source().begin.column,
         fault_of(e));
  }
}

}  // namespace flux2
