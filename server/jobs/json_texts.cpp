#include "server/jobs/json_texts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace flux2 {

const Json& must_be(const Json& json, bool is_right, const char* what) {
  check(is_right, "must be {}", what);
  return json;
}

std::string text_of_json(const Json& json) { return json.is_string() ? json.get<std::string>() : json.dump(); }

std::vector<std::string> texts_of(const Json& json) {
  must_be(json, json.is_array(), "a list of texts");
  std::vector<std::string> texts;
  for (const Json& item : json) texts.push_back(must_be(item, item.is_string(), "a list of texts").get<std::string>());
  return texts;
}

std::string number_text(const Json& json) {
  must_be(json, json.is_number(), "a number");
  return json.is_number_float() ? fmt::format("{}", json.get<double>()) : json.dump();
}

std::string numbers_joined(const Json& json) {
  must_be(json, json.is_array(), "a list of numbers");
  std::vector<std::string> texts;
  for (const Json& item : json) texts.push_back(number_text(item));
  return fmt::format("{}", fmt::join(texts, ","));
}

}  // namespace flux2
