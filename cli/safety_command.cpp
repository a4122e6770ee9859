#include "cli/safety_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/input_images.h"
#include "app/model_choice.h"
#include "app/safety.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

std::string json_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

const char* text_word(const SafetySettings& s) {
  switch (s.text) {
    case SafetySettings::Text::Mistral: return "mistral";
    case SafetySettings::Text::Qwen: return "qwen";
    case SafetySettings::Text::Off: break;
  }
  return "off";
}

const char* image_word(const SafetySettings& s) {
  switch (s.images) {
    case SafetySettings::Images::Nsfw: return "nsfw";
    case SafetySettings::Images::NsfwAndMistral: return "nsfw+mistral";
    case SafetySettings::Images::Off: break;
  }
  return "off";
}

std::vector<std::string> checked_words(const SafetySettings& s) {
  std::vector<std::string> words;
  const auto add = [&](bool on, bool possible, const char* word) {
    if (on && possible) words.emplace_back(word);
  };
  const bool text = s.text != SafetySettings::Text::Off, images = s.images != SafetySettings::Images::Off;
  add(s.check.prompt, text, "prompt");
  add(s.check.rewritten, text, "rewritten");
  add(s.check.references, images, "references");
  add(s.check.canvas, images, "canvas");
  add(s.check.output, images, "output");
  return words;
}

Json verdict_json(const Safety::Verdict& verdict) {
  Json json = {{"flagged", verdict.flagged}, {"by", verdict.by}};
  if (verdict.score >= 0) json["nsfw"] = verdict.score;
  if (verdict.answer) json["answer"] = {{"yes", verdict.answer->yes}, {"no", verdict.answer->no}};
  return json;
}

std::string verdict_text(const Safety::Verdict& verdict) {
  const std::string score = verdict.score >= 0 ? fmt::format(", nsfw {:.4f}", verdict.score) : "";
  return verdict.flagged ? fmt::format("flagged by {}{}", verdict.by, score) : "passed" + score;
}

// A check that is asked for runs, whatever the configuration says about requests.
SafetySettings settings_for(const Invocation& run, bool prompt, bool images, const ModelFiles& model) {
  SafetySettings settings = safety_settings(run.settings);
  if (images && settings.images == SafetySettings::Images::Off) settings.images = SafetySettings::Images::Nsfw;
  if (prompt && settings.text == SafetySettings::Text::Off)
    settings.text =
        family_of_text_encoder(model) == DecoderFamily::Mistral ? SafetySettings::Text::Mistral : SafetySettings::Text::Qwen;
  return settings;
}

int run_safety_check(Invocation& run) {
  const RequestSpec spec = run.spec();
  const std::string prompt = spec.prompt.value_or("");
  if (prompt.empty() && run.positional.empty())
    throw Error(ErrorCode::InvalidArgument, "nothing was given to check",
                Hint("name images, or give a prompt with {0}", {set_option("prompt")}));
  run.standard_input = [bytes = run.limits.image.file_bytes] { return read_standard_input(bytes); };
  const bool needs_model = !prompt.empty() || safety_settings(run.settings).images == SafetySettings::Images::NsfwAndMistral;
  const ModelFiles model = needs_model ? choose_model(spec, run) : ModelFiles{};
  Safety safety(settings_for(run, !prompt.empty(), !run.positional.empty(), model), run);
  const auto cancelled = [] { return interrupt_signal() != 0; };

  Json results = Json::array();
  bool flagged = false;
  const auto tell = [&](const char* kind, const std::string& what, const Safety::Verdict& verdict) {
    flagged |= verdict.flagged;
    Json json = verdict_json(verdict);
    json[kind] = what;
    results.push_back(std::move(json));
    if (!run.console.json())
      run.console.result(fmt::format("{}  {}", kind == std::string("image") ? what : "prompt", verdict_text(verdict)));
  };
  if (!prompt.empty()) tell("prompt", prompt, safety.judge_prompt(prompt, spec, model, cancelled));
  InputImages images(run.log, run.standard_input, run.limits);
  for (const std::string& path : run.positional)
    tell("image", path, safety.judge_image(*images.picture(path).image, spec, model, cancelled));
  if (run.console.json())
    run.console.result(json_line({{"flagged", flagged}, {"results", results}, {"warnings", run.console.warnings()}}));
  return flagged ? exit_code(ErrorCode::Refused) : 0;
}

std::vector<OptionGroup> check_options() {
  std::vector<OptionGroup> groups = {
      {"Check",
       {option("prompt", 'p', "check this prompt"), option("safety_text"), option("safety_text_model"), option("safety_image"),
        option("safety_nsfw_threshold"), option("safety_nsfw_model"), option("safety_device"), option("moderation")}}};
  for (OptionGroup& group : generate_options())
    if (group.title == "Model" || group.title == "Device and memory" || group.title == "Messages")
      groups.push_back(std::move(group));
  set_common(groups, {"prompt", "safety-text", "safety-image", "safety-nsfw-threshold", "safety-nsfw-model", "model", "json",
                      "help", "help-all"});
  return groups;
}

}  // namespace

std::vector<OptionGroup> safety_options() {
  std::vector<OptionGroup> groups;
  for (OptionGroup& group : generate_options())
    if (group.title == "Messages") groups.push_back(std::move(group));
  return groups;
}

const std::vector<Command>& safety_actions() {
  static const std::vector<Command> list = {
      {"check",
       {},
       "check images or a prompt, as requests are checked",
       "[IMAGE…] [--prompt TEXT] [options]",
       check_options,
       {"flux2 safety check photo.png", "flux2 safety check --prompt \"a red fox\" -m flux.2-klein-4b --safety-text qwen",
        "flux2 safety check --json *.png"},
       run_safety_check,
       "Uses the settings of the section [safety], even for checks that are off there. The exit status is 9 if anything is "
       "flagged."}};
  return list;
}

int run_safety(Invocation& run) {
  check(run.positional.empty(), "unknown action \"{}\"; use check", run.positional.empty() ? "" : run.positional.front());
  const SafetySettings settings = run.safety ? run.safety->settings() : SafetySettings{};
  const std::vector<std::string> words = checked_words(settings);
  std::string classifier, problem;
  if (settings.images != SafetySettings::Images::Off) {
    try {
      classifier = find_nsfw_model(settings.nsfw_model, run).string();
    } catch (const Error& e) {
      problem = e.what();
    }
  }
  if (run.console.json()) {
    run.console.result(json_line({{"on", settings.is_on()},
                                  {"text", text_word(settings)},
                                  {"image", image_word(settings)},
                                  {"nsfw_threshold", settings.nsfw_threshold},
                                  {"nsfw_model", classifier},
                                  {"check", words},
                                  {"on_flag", settings.on_flag == SafetySettings::OnFlag::Blur ? "blur" : "refuse"},
                                  {"problem", problem}}));
    return problem.empty() ? 0 : exit_code(ErrorCode::NotFound);
  }
  if (!settings.is_on()) {
    run.console.result("Nothing is checked: safety.text and safety.image of the configuration are off.");
    return 0;
  }
  run.console.result(fmt::format("prompts      {}", text_word(settings)));
  run.console.result(fmt::format("images       {}{}", image_word(settings),
                                 settings.images == SafetySettings::Images::Off
                                     ? ""
                                     : fmt::format(", flagged if the score is greater than {}", settings.nsfw_threshold)));
  if (!classifier.empty()) run.console.result("classifier   " + classifier);
  run.console.result(fmt::format("checked      {}", fmt::join(words, ", ")));
  run.console.result(fmt::format("if flagged   {}", settings.on_flag == SafetySettings::OnFlag::Blur ? "blur" : "refuse"));
  if (!problem.empty()) run.console.warn(problem);
  return problem.empty() ? 0 : exit_code(ErrorCode::NotFound);
}

}  // namespace flux2
