#include "cli/adapter_choice.h"

#include <charconv>
#include <optional>
#include <regex>

#include "base/error.h"
#include "cli/folders.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

fs::path find_file(const std::string& name, const Invocation& run) {
  if (is_there(name)) return name;
  std::vector<fs::path> looked;
  for (const fs::path& folder : model_folders(run.environment, run.project, run.user))
    for (const fs::path& place : {folder / "loras", folder})
      for (const std::string& file : {name, name + ".safetensors"}) {
        if (is_there(place / file)) return place / file;
        if (file == name) looked.push_back(place);
      }
  std::string places;
  for (const fs::path& place : looked) places += (places.empty() ? "" : ", ") + place.string();
  throw Error(ErrorCode::NotFound,
              "the adapter " + name + " does not exist; looked in " + (places.empty() ? "this folder" : places),
              "name a file, or put it into the folder loras of your models");
}

}  // namespace

AdapterChoice adapter_choice(const std::string& text, const Invocation& run) {
  AdapterChoice choice;
  std::string name = text;
  // A colon may belong to the name; only a number behind the last one is a strength.
  if (const size_t colon = text.rfind(':'); colon != std::string::npos && !is_there(text))
    if (const auto strength = number_of(std::string_view(text).substr(colon + 1))) {
      check(*strength >= -4 && *strength <= 4, "--lora {}: a strength is from -4 to 4", text);
      choice.strength = *strength;
      name = text.substr(0, colon);
    }
  choice.path = find_file(name, run);
  return choice;
}

std::vector<AdapterChoice> adapter_choices(const Invocation& run) {
  std::vector<AdapterChoice> choices;
  if (const Setting* given = run.settings.find("lora"))
    for (const std::string& text : given->values) choices.push_back(adapter_choice(text, run));
  return choices;
}

std::string without_lora_tags(const std::string& prompt, std::vector<std::string>& found) {
  static const std::regex tag("<lora:([^<>:]+)(:[-+]?[0-9.]+)?>");
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
