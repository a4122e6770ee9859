#include "app/safety_settings.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

const std::vector<std::string>& checkable() {
  static const std::vector<std::string> names = {"prompt", "rewritten", "references", "canvas", "output"};
  return names;
}

// "prompt, output" → {"prompt", "output"}: the environment has one text for a list.
std::vector<std::string> words_in(const std::string& text) {
  std::vector<std::string> words;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (const std::string_view word = trimmed(rest.substr(0, comma)); !word.empty()) words.emplace_back(word);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return words;
}

void check_checkable(const std::string& text) {
  for (const std::string& word : words_in(text))
    if (std::find(checkable().begin(), checkable().end(), word) == checkable().end())
      throw Error(ErrorCode::InvalidArgument, "\"" + printable(word) + "\" cannot be checked",
                  "use some of prompt, rewritten, references, canvas and output");
}

SafetySettings::What what_in(const Setting& setting) {
  std::vector<std::string> words;
  for (const std::string& value : setting.values)
    for (std::string& word : words_in(value)) words.push_back(std::move(word));
  const auto has = [&](const char* name) { return std::find(words.begin(), words.end(), name) != words.end(); };
  return {has("prompt"), has("rewritten"), has("references"), has("canvas"), has("output")};
}

}  // namespace

const std::vector<Field>& safety_fields() {
  using T = FieldType;
  static const std::vector<Field> fields = {
      {.name = "safety_text",
       .type = T::Choice,
       .unit = "WHO",
       .help = "who checks prompts: off, mistral or qwen, the language model of a text encoder (default: off)",
       .section = "safety",
       .choices = {"off", "mistral", "qwen"}},
      {.name = "safety_text_model",
       .unit = "NAME|FOLDER",
       .help = "a model whose text encoder answers; without it, the model of the request, or an installed one that fits",
       .section = "safety"},
      {.name = "safety_image",
       .type = T::Choice,
       .unit = "WHO",
       .help = "who checks images: off, nsfw (a classifier) or nsfw+mistral (a language model that sees too) (default: off)",
       .section = "safety",
       .choices = {"off", "nsfw", "nsfw+mistral"}},
      {.name = "safety_nsfw_threshold",
       .type = T::Number,
       .unit = "X",
       .help = "an image is flagged if the classifier's score for nsfw is greater (default: 0.85)",
       .section = "safety",
       .low = 0,
       .high = 1},
      {.name = "safety_nsfw_model",
       .unit = "NAME|FILE",
       .help = "the classifier; without it, the installed one",
       .section = "safety"},
      {.name = "safety_device",
       .unit = "NAME",
       .help = "where the language model of the checks runs: auto, cpu, cuda or cuda:N; without it, where the request runs",
       .section = "safety"},
      {.name = "safety_check",
       .type = T::Texts,
       .unit = "LIST",
       .help = "what is checked, a list of prompt, rewritten, references, canvas and output; without it, everything",
       .section = "safety",
       .check_text = check_checkable,
       .suggestions = checkable()},
      {.name = "safety_on_flag",
       .type = T::Choice,
       .unit = "WHAT",
       .help = "what happens to a flagged image: refuse, or blur (default: refuse)",
       .section = "safety",
       .choices = {"refuse", "blur"}},
      {.name = "safety_log", .type = T::Flag, .help = "log the result of every check", .section = "safety"},
  };
  return fields;
}

SafetySettings safety_settings(const GetEnv& environment, const ConfigFile& user) {
  std::vector<const Field*> fields;
  for (const Field& f : safety_fields()) fields.push_back(&f);
  Settings settings;
  settings.add(layer_of_environment(fields, environment));
  settings.add(layer_of_file(fields, user));
  return safety_settings(settings);
}

SafetySettings safety_settings(const Settings& settings) {
  SafetySettings s;
  const std::string text = settings.choice("safety-text", {"off", "mistral", "qwen"}, "off");
  const std::string images = settings.choice("safety-image", {"off", "nsfw", "nsfw+mistral"}, "off");
  s.text = text == "mistral" ? SafetySettings::Text::Mistral
           : text == "qwen"  ? SafetySettings::Text::Qwen
                             : SafetySettings::Text::Off;
  s.images = images == "nsfw"           ? SafetySettings::Images::Nsfw
             : images == "nsfw+mistral" ? SafetySettings::Images::NsfwAndMistral
                                        : SafetySettings::Images::Off;
  s.nsfw_threshold = settings.number("safety-nsfw-threshold", 0, 1).value_or(kNsfwThreshold);
  s.nsfw_model = settings.text("safety-nsfw-model");
  s.text_model = settings.text("safety-text-model");
  s.device = settings.text("safety-device");
  if (const Setting* check = settings.find("safety-check")) s.check = what_in(*check);
  s.on_flag = settings.choice("safety-on-flag", {"refuse", "blur"}, "refuse") == "blur" ? SafetySettings::OnFlag::Blur
                                                                                        : SafetySettings::OnFlag::Refuse;
  s.log = settings.flag("safety-log");
  return s;
}

}  // namespace flux2
