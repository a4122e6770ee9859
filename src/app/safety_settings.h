#pragma once

#include <string>
#include <vector>

#include "app/context.h"
#include "app/settings.h"

namespace flux2 {

constexpr double kNsfwThreshold = 0.85;     // an image is flagged if its score is greater
constexpr double kNsfwThresholdLow = 0.95;  // at least, for requests with moderation low

// The section [safety] of the user's configuration: which prompts and images are checked, and by whom.
struct SafetySettings {
  enum class Text { Off, Mistral, Qwen } text = Text::Off;
  enum class Images { Off, Nsfw, NsfwAndMistral } images = Images::Off;
  double nsfw_threshold = kNsfwThreshold;
  std::string nsfw_model;  // path or name; empty: the installed one
  std::string text_model;  // a model whose text encoder answers; empty: the model of the request, or an installed one that fits
  std::string device;      // of the language model; empty: that of the request

  struct What {
    bool prompt = true, rewritten = true, references = true, canvas = true, output = true;
    bool operator==(const What&) const = default;
  } check;
  enum class OnFlag { Refuse, Blur } on_flag = OnFlag::Refuse;
  bool log = false;

  bool is_on() const { return text != Text::Off || images != Images::Off; }
};

// The keys of the section. They are not fields of a request: no request, record or project file can change them.
const std::vector<Field>& safety_fields();

// From the environment (FLUX2_SAFETY_TEXT, …) and the user's configuration file. Throws InvalidArgument that names the key.
SafetySettings safety_settings(const GetEnv& environment, const ConfigFile& user);
SafetySettings safety_settings(const Settings& settings);

}  // namespace flux2
