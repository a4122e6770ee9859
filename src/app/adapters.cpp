#include "app/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <regex>

#include "app/registry_access.h"
#include "base/error.h"
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

// A colon may belong to the name: what follows it is a strength only where it is a number, or nothing before another colon.
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

// The registered adapter of that name, with the strength the user likes it to have.
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

std::vector<std::string> adapters_beside(const std::vector<std::string>& all, const std::vector<std::string>& own) {
  std::vector<std::string> both;
  for (const std::string& text : all) {
    const Parts parts = split(text);
    const bool replaced = std::any_of(own.begin(), own.end(), [&](const std::string& other) {
      const Parts o = split(other);
      return o.name == parts.name && o.layers == parts.layers;
    });
    if (!replaced) both.push_back(text);
  }
  both.insert(both.end(), own.begin(), own.end());
  return both;
}

std::string without_lora_tags(const std::string& prompt, std::vector<std::string>& found) {
  static const std::regex tag("<lora:([^<>:]+)(:[-+]?[0-9.]+(:[^<>]+)?)?>");
  std::string rest;
  auto from = prompt.cbegin();
  for (std::sregex_iterator match(prompt.begin(), prompt.end(), tag), end; match != end; ++match) {
    rest.append(from, (*match)[0].first);
    from = (*match)[0].second;
    while (from != prompt.cend() && *from == ' ' && (rest.empty() || rest.back() == ' ')) ++from;
    found.push_back((*match)[1].str() + (*match)[2].str());
  }
  if (from == prompt.cbegin()) return prompt;  // every space of a prompt without tags is a token
  rest.append(from, prompt.cend());
  while (rest.ends_with(' ')) rest.pop_back();
  return rest;
}

}  // namespace flux2
