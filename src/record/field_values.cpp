#include "record/field_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/number_from_text.h"
#include "base/text.h"
#include "pipeline/picture_size.h"

namespace flux2 {

namespace {

std::string joined(const std::vector<std::string>& texts) { return fmt::format("{}", fmt::join(texts, ", ")); }

template <class N>
N number_within(const Field& field, const std::string& text, const std::string& origin, const char* kind) {
  const auto value = number_from_text<N>(text);
  if (field.limited) {  // the check of the limits says how many are allowed
    const bool is_long = !value && !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    check(!is_long, "{}: \"{}\" is too large", origin, printable(text));
    check(value.has_value(), "{}: \"{}\" is not {}", origin, printable(text), kind);
    if (static_cast<double>(*value) < field.low)
      fail(ErrorCode::InvalidArgument, "{}: \"{}\" is less than {}", origin, printable(text),
           std::max(field.low, field.smallest));
    check(static_cast<double>(*value) <= field.high, "{}: \"{}\" is too large", origin, printable(text));
  }
  if (!value || !(static_cast<double>(*value) >= field.low && static_cast<double>(*value) <= field.high))
    fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not {} from {} to {}", origin, printable(text), kind, field.low, field.high);
  return *value;
}

int64_t seed_of(const std::string& text, const std::string& origin) {
  if (text == "random") return -1;
  const auto value = number_from_text<int64_t>(text);
  if (!value || *value < -1)
    fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not random or a whole number from 0 to 2^63-1", origin, printable(text));
  return *value;
}

bool flag_of(const std::string& text, const std::string& origin) {
  for (const char* yes : {"true", "1", "yes", "on"})
    if (text == yes) return true;
  for (const char* no : {"false", "0", "no", "off", ""})
    if (text == no) return false;
  fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not true or false", origin, printable(text));
}

void check_grammar(const Field& field, const std::string& text, const std::string& origin) {
  if (field.check_text) in_context(origin, [&] { field.check_text(text); });
}

}  // namespace

std::string RequestSpec::origin(std::string_view field) const {
  const auto found = origins.find(field);
  return found == origins.end() ? std::string(field) : found->second;
}

bool RequestSpec::is_asked(std::string_view name) const {
  return get_value(*this, field(name)).has_value() && !defaults.contains(name);
}

FieldValue parse_value(const Field& field, const std::vector<std::string>& texts, const std::string& origin) {
  require(!texts.empty(), "the field {} has no value", field.name);
  const std::string& text = texts.back();
  if (field.later) {
    if (std::find(field.harmless.begin(), field.harmless.end(), text) == field.harmless.end())
      fail(ErrorCode::InvalidArgument, "{}: {} is not available yet in this version", origin, printable(text));
    return text;
  }
  switch (field.type) {
    case FieldType::Texts:
      for (const std::string& each : texts) check_grammar(field, each, origin);
      return texts;
    case FieldType::Integer: return number_within<int64_t>(field, text, origin, "a whole number");
    case FieldType::Number: return number_within<double>(field, text, origin, "a number");
    case FieldType::Flag: return flag_of(text, origin);
    case FieldType::Seed: return seed_of(text, origin);
    case FieldType::Choice:
      if (std::find(field.choices.begin(), field.choices.end(), text) == field.choices.end())
        fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not one of {}", origin, printable(text), joined(field.choices));
      return text;
    case FieldType::Size: in_context(origin, [&] { parse_picture_size(text); }); return text;
    case FieldType::Text: check_grammar(field, text, origin); return text;
  }
  return text;
}

std::vector<std::string> print_value(const FieldValue& value) {
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return *texts;
  if (const auto* text = std::get_if<std::string>(&value)) return {*text};
  if (const auto* flag = std::get_if<bool>(&value)) return {*flag ? "true" : "false"};
  if (const auto* whole = std::get_if<int64_t>(&value)) return {std::to_string(*whole)};
  return {fmt::format("{}", std::get<double>(value))};
}

FieldValue value_from_json(const Field& field, const Json& json, const std::string& origin) {
  const auto wrong = [&](const char* expected) {
    fail(ErrorCode::InvalidArgument, "{}: expected {}, found {}", origin, expected, json.type_name());
  };
  switch (field.type) {
    case FieldType::Texts:
      if (json.is_string()) return parse_value(field, {json.get<std::string>()}, origin);
      if (!json.is_array() || json.empty()) wrong("a list of strings");
      for (const Json& each : json)
        if (!each.is_string()) wrong("a list of strings");
      return parse_value(field, json.get<std::vector<std::string>>(), origin);
    case FieldType::Flag:
      if (!json.is_boolean()) wrong("true or false");
      return json.get<bool>();
    case FieldType::Integer:
    case FieldType::Seed:
      if (json.is_string() && field.type == FieldType::Seed) return seed_of(json.get<std::string>(), origin);
      if (!json.is_number_integer()) wrong("a whole number");
      if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail(ErrorCode::InvalidArgument, "{}: {} is too large", origin, json.get<uint64_t>());
      return parse_value(field, {std::to_string(json.get<int64_t>())}, origin);
    case FieldType::Number:
      if (!json.is_number()) wrong("a number");
      return parse_value(field, {fmt::format("{}", json.get<double>())}, origin);
    case FieldType::Choice:
      // Records write on and off as true and false, and older ones the first and second choice so.
      if (json.is_boolean() && field.choices.size() >= 2) {
        const bool on_off = std::find(field.choices.begin(), field.choices.end(), "on") != field.choices.end();
        const bool yes = json.get<bool>();
        return parse_value(field, {on_off ? (yes ? "on" : "off") : field.choices.at(yes ? 0 : 1)}, origin);
      }
      [[fallthrough]];
    case FieldType::Text:
    case FieldType::Size:
      if (!json.is_string()) wrong("a string");
      return parse_value(field, {json.get<std::string>()}, origin);
  }
  return {};
}

Json value_to_json(const FieldValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

void set_value(RequestSpec& spec, const Field& field, FieldValue value) {
  if (field.type == FieldType::Size) {
    const PictureSize size = parse_picture_size(std::get<std::string>(value));
    spec.width = size.width, spec.height = size.height;
    return;
  }
  std::visit(
      [&](auto member) {
        if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
          using V = typename std::decay_t<decltype(spec.*member)>::value_type;
          require(std::holds_alternative<V>(value), "the field {} got a value of another type", field.name);
          spec.*member = std::get<V>(std::move(value));
        }
      },
      field.member);
}

std::optional<FieldValue> get_value(const RequestSpec& spec, const Field& field) {
  return std::visit(
      [&](auto member) -> std::optional<FieldValue> {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) return std::nullopt;
        else return spec.*member ? std::optional<FieldValue>(*(spec.*member)) : std::nullopt;
      },
      field.member);
}

Json spec_to_json(const RequestSpec& spec) {
  Json json = Json::object();
  for (const Field& f : request_fields())
    if (const auto value = get_value(spec, f)) json[f.name] = value_to_json(*value);
  return json;
}

RequestSpec spec_from_json(const Json& json) {
  check(json.is_object(), "a request is a JSON object, not {}", json.type_name());
  RequestSpec spec;
  for (const auto& [key, value] : json.items()) {
    const Field* f = find_field(key);
    if (!f) {
      std::vector<std::string> names;
      for (const Field& known : request_fields())
        if (!known.later && !known.help.empty()) names.push_back(known.name);
      const std::string near = nearest_word(key, names);
      throw Error(ErrorCode::InvalidArgument, fmt::format("unknown request field \"{}\"", printable(key)),
                  near.empty() ? Hint() : Hint("did you mean {0}?", {set_option(near)}));
    }
    if (value.is_null()) continue;
    set_value(spec, *f, value_from_json(*f, value, key));
    spec.origins[f->name] = key;
  }
  return spec;
}

}  // namespace flux2
