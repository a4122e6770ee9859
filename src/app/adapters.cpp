#include "app/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "app/registry_access.h"
#include "base/error.h"
#include "base/foreign_text.h"
#include "base/path_exists.h"
#include "base/text.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

struct Parts {
  std::string name;
  std::optional<double> strength;
  std::string layers;
};

// A colon may be part of the name. The text after it is a strength if it is a number, or empty before another colon.
Parts split(const std::string& text) {
  if (!path_exists(text))
    for (size_t colon = text.find(':'); colon != std::string::npos; colon = text.find(':', colon + 1)) {
      const size_t next = text.find(':', colon + 1);
      const std::string piece = text.substr(colon + 1, next == std::string::npos ? next : next - colon - 1);
      const auto strength = piece.empty() && next != std::string::npos ? std::nullopt : number_of(piece);
      if (strength || (piece.empty() && next != std::string::npos))
        return {text.substr(0, colon), strength, next == std::string::npos ? "" : text.substr(next + 1)};
    }
  return {text, std::nullopt, ""};
}

// What follows the name in a prompt: ":0.7", ":0.7:double_blocks", "::!mlp" or nothing.
struct AdapterSuffix {
  std::optional<double> strength;
  std::string layers;
};

AdapterSuffix suffix_of(const std::string& text) {
  AdapterSuffix suffix;
  if (text.empty()) return suffix;
  const size_t colon = std::min(text.find(':', 1), text.size());
  std::string_view number = std::string_view(text).substr(1, colon - 1);
  if (number.starts_with('+')) number.remove_prefix(1);
  suffix.strength = number_of(number);
  check(suffix.strength || (number.empty() && colon < text.size()), "\"{}\" is not a strength", printable(number));
  if (colon < text.size()) suffix.layers = text.substr(colon + 1);
  return suffix;
}

// Whether the text between "<lora:" and ">" is NAME, NAME:NUMBER or NAME:NUMBER:LAYERS.
bool is_lora_tag(std::string_view body) {
  const size_t name = std::min(body.find(':'), body.size());
  if (name == 0) return false;
  if (name == body.size()) return true;
  std::string_view number = body.substr(name + 1, body.find(':', name + 1) - name - 1);
  const size_t end = name + 1 + number.size();
  if (end + 1 == body.size()) return false;  // a colon without layers
  if (number.starts_with('-') || number.starts_with('+')) number.remove_prefix(1);
  return !number.empty() && number.find_first_not_of("0123456789.") == number.npos;
}

// The registered adapter with that name, and its preferred strength.
std::optional<AdapterChoice> find_registered(const std::string& name, const AppContext& context) {
  const auto registry = look_into_registry(context);
  const auto record = registry ? registry->find(name) : std::nullopt;
  if (!record || record->type != ModelType::Lora) return std::nullopt;
  AdapterChoice choice;
  choice.path = record->path;
  choice.strength = record->defaults.lora_weight.value_or(choice.strength);
  return choice;
}

fs::path find_file(const std::string& name, const AppContext& context) {
  std::vector<fs::path> looked;
  for (const fs::path& folder : model_folders(context))
    for (const fs::path& place : {folder / "loras", folder})
      for (const std::string& file : {name, name + ".safetensors"}) {
        if (path_exists(place / file)) return place / file;
        if (file == name) looked.push_back(place);
      }
  std::string places;
  for (const fs::path& place : looked) places += (places.empty() ? "" : ", ") + place.string();
  if (const size_t colon = name.rfind(':'); colon != name.npos && name.find('/', colon) == name.npos)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("adapter {}: \"{}\" is not a strength, and no file has this name", name, name.substr(colon + 1)),
                "write NAME:STRENGTH with a number from -4 to 4");
  const auto near = nearest_words(name, registered_parts(context).names(ComponentKind::Adapter), 3);
  throw Error(ErrorCode::NotFound,
              "the adapter " + name + " does not exist; searched " + (places.empty() ? "this folder" : places),
              near.empty() ? "give the path of a file, or put it into the loras folder of your model folders"
                           : fmt::format("the nearest registered ones are {}; a file can be named too", fmt::join(near, ", ")));
}

}  // namespace

AdapterChoice adapter_choice(const std::string& text, const AppContext& context) {
  const Parts parts = split(text);
  check(!parts.strength || (*parts.strength >= -4 && *parts.strength <= 4), "adapter {}: a strength is from -4 to 4", text);
  AdapterChoice choice;
  if (path_exists(parts.name)) choice.path = parts.name;
  else if (const auto registered = find_registered(parts.name, context)) choice = *registered;
  else choice.path = find_file(parts.name, context);
  choice.strength = parts.strength.value_or(choice.strength);
  choice.layers = parts.layers;
  return choice;
}

std::string text_of(const AdapterChoice& choice) {
  return fmt::format("{}:{}{}{}", choice.path.string(), choice.strength, choice.layers.empty() ? "" : ":", choice.layers);
}

std::vector<AdapterChoice> adapter_choices(const RequestSpec& spec, const AppContext& context) {
  std::vector<AdapterChoice> choices;
  for (const std::string& text : spec.lora.value_or(std::vector<std::string>{})) choices.push_back(adapter_choice(text, context));
  return choices;
}

AdapterChoice adapter_by_name(const std::string& text, const std::string& origin, const AppContext& context) {
  // The name ends at the first colon, whether or not a file with the whole text as its name exists.
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon);
  if (!is_plain_name(name))
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("{}: \"{}\" is not the name of an adapter. Prompts and images may name adapters, but not paths",
                            origin, printable(name)),
                Hint("give the path with {0}", {set_option("lora", "FILE:STRENGTH")}));
  const AdapterSuffix suffix = in_context(origin, [&] { return suffix_of(text.substr(colon)); });
  const auto registered = find_registered(name, context);
  AdapterChoice choice = registered ? *registered : AdapterChoice{in_context(origin, [&] { return find_file(name, context); })};
  choice.strength = suffix.strength.value_or(choice.strength);
  check(choice.strength >= -4 && choice.strength <= 4, "{}: adapter {}: a strength is from -4 to 4", origin, printable(name));
  choice.layers = suffix.layers;
  return choice;
}

std::vector<std::string> adapters_beside(const std::vector<std::string>& all, const std::vector<std::string>& own,
                                         const AppContext& context) {
  const auto path_of = [&](const std::string& text) -> std::optional<fs::path> {
    try {
      return adapter_choice(text, context).path;
    } catch (const Error&) {  // it is refused when it is used
      return std::nullopt;
    }
  };
  const auto same = [&](const std::string& a, const std::string& b) {
    const Parts one = split(a), other = split(b);
    if (one.layers != other.layers) return false;
    if (one.name == other.name) return true;
    const auto file = path_of(a);
    return file && file == path_of(b);
  };
  std::vector<std::string> both;
  for (const std::string& text : all)
    if (std::none_of(own.begin(), own.end(), [&](const std::string& other) { return same(text, other); })) both.push_back(text);
  both.insert(both.end(), own.begin(), own.end());
  return both;
}

std::string without_lora_tags(const std::string& prompt, std::vector<std::string>& found) {
  constexpr std::string_view kOpen = "<lora:";
  const std::string_view text = prompt;
  std::string rest;
  size_t from = 0;
  for (size_t open = text.find(kOpen); open != text.npos; open = text.find(kOpen, open)) {
    const size_t start = open + kOpen.size(), close = text.find_first_of("<>", start);
    if (close == text.npos) break;
    const std::string_view body = text.substr(start, close - start);
    if (text[close] == '<' || !is_lora_tag(body)) {
      open = close;  // where another tag may begin
      continue;
    }
    rest.append(text, from, open - from);
    from = open = close + 1;
    while (from < text.size() && text[from] == ' ' && (rest.empty() || rest.back() == ' ')) ++from;
    found.emplace_back(body);
  }
  if (from == 0) return prompt;  // every space of a prompt without tags is a token
  rest.append(text, from);
  while (rest.ends_with(' ')) rest.pop_back();
  return rest;
}

}  // namespace flux2
