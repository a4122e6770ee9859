#include "cli/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/captioning.h"
#include "app/input_images.h"
#include "app/model_choice.h"
#include "app/prompt_rewriting.h"
#include "app/text_task.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

// The options that choose who describes, in the words of these commands.
OptionGroup describer_group() {
  OptionSpec way = option("upsample", 0,
                          "who describes: local (the model's own text encoder, which dev's can), http (a chat server, "
                          "--upsample-url), openrouter or ollama (default: generate.upsample of the configuration, else local)");
  way.words = {"local", "http", "openrouter", "ollama"};
  return {
      "Description",
      {{"about", 0, "TEXT", "what the model should know, like the names of people or things"},
       {"instructions", 0, "FILE", "instructions for describing (default: built in)"},
       option("seed", 'S', "decides the answer too, where the service takes a seed"),
       way,
       option("upsample_model", 0, "model, as the service calls it"),
       option("upsample_url"),
       option("upsample_key_env"),
       option("upsample_params", 0, "how the answer is sampled, like {\"temperature\": 0.7}; http: any member of the request"),
       option("upsample_max_tokens", 0, "length of a description, 1 to 4096 tokens (default: 512)"),
       option("upsample_timeout", 0, "longest time for one image, in seconds (default: 60; local: 120)"),
       option("upsample_full_size", 0, "send images as PNG without scaling them down")}};
}

std::vector<OptionGroup> groups_with(OptionGroup first) {
  std::vector<OptionGroup> groups = {std::move(first)};
  for (OptionGroup& group : generate_options())
    if (group.title == "Model" || group.title == "Device and memory" || group.title == "Messages")
      groups.push_back(std::move(group));
  return groups;
}

RequestSpec describer_spec(const Invocation& run) {
  RequestSpec spec = run.spec();
  if (spec.upsample.value_or("none") == "none") spec.upsample = "local";
  spec.upsample_no_images.reset();
  return spec;
}

// The model that describes, or nothing if a service does.
ModelFiles describing_model(Invocation& run, const RequestSpec& spec) {
  return *spec.upsample == "local" ? choose_model(spec, run) : ModelFiles{};
}

std::unique_ptr<Rewriter> open_describer(Invocation& run, const RequestSpec& spec, const ModelFiles& model) {
  auto describer = open_rewriter(spec, run, run.settings.flag("offline"), model, run.settings.text("instructions"));
  if (const std::string place = describer->place(); !place.empty())
    run.console.note(
        fmt::format("images are described by {} ({}): they are sent to {}", describer->way(), describer->model(), place));
  return describer;
}

uint64_t seed_of(const RequestSpec& spec) { return spec.seed && *spec.seed >= 0 ? static_cast<uint64_t>(*spec.seed) : 0; }

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool is_interrupted() { return interrupt_signal() != 0; }

}  // namespace

std::vector<OptionGroup> describe_options() {
  auto groups = groups_with(describer_group());
  set_common(groups,
             {"about", "instructions", "upsample", "upsample-model", "upsample-url", "model", "json", "help", "help-all"});
  return groups;
}

int run_describe(Invocation& run) {
  check(!run.positional.empty(), "name the image to describe, for example photo.png");
  check(run.positional.size() == 1, "give one image, not {}; for a folder use flux2 dataset caption", run.positional.size());
  run.standard_input = [bytes = run.limits.image.file_bytes] { return read_standard_input(bytes); };
  const RequestSpec spec = describer_spec(run);
  InputImages images(run.log, run.standard_input, run.limits);
  const Image image = to_rgb(*images.picture(run.positional[0]).image);
  const ModelFiles model = describing_model(run, spec);
  const auto describer = open_describer(run, spec, model);
  const TextTask task{.describes = true, .prompt = run.settings.text("about"), .images = {image}, .seed = seed_of(spec)};
  const RewrittenPrompt made = run_text_task(*describer, task, spec, model, run, is_interrupted);
  if (!run.console.json()) {
    run.console.result(made.prompt);
    return 0;
  }
  run.console.result(json_text({{"image", run.positional[0]},
                                {"description", made.prompt},
                                {"by", describer->way()},
                                {"model", describer->model()},
                                {"tokens", made.tokens ? Json(*made.tokens) : Json(nullptr)},
                                {"warnings", run.console.warnings()}}));
  return 0;
}

std::vector<OptionGroup> caption_options() {
  OptionGroup own = describer_group();
  own.title = "Captions";
  const std::vector<OptionSpec> first = {{"prefix", 0, "TEXT", "put this in front of every caption, like \"myword, \""},
                                         {"overwrite", 0, "", "also replace captions that exist (default: they are kept)"},
                                         {"recursive", 0, "", "also caption the images in folders inside FOLDER"},
                                         {"caption-extension", 0, "EXT", "of the caption files (default: .txt)"}};
  own.options.insert(own.options.begin(), first.begin(), first.end());
  auto groups = groups_with(std::move(own));
  set_common(groups, {"prefix", "overwrite", "recursive", "about", "instructions", "upsample", "upsample-model", "upsample-url",
                      "model", "json", "help", "help-all"});
  return groups;
}

int run_dataset_caption(Invocation& run) {
  check(!run.positional.empty(), "name the folder with the images");
  check(run.positional.size() == 1, "give one folder, not {}", run.positional.size());
  const RequestSpec spec = describer_spec(run);
  CaptionOptions options{.folder = run.positional[0]};
  options.prefix = run.settings.text("prefix");
  options.about = run.settings.text("about");
  options.overwrite = run.settings.flag("overwrite");
  options.recursive = run.settings.flag("recursive");
  options.seed = seed_of(spec);
  if (run.settings.has("caption-extension")) options.extension = run.settings.text("caption-extension");
  const auto describer = open_describer(run, spec, describing_model(run, spec));
  const auto show = [&](size_t done, size_t total, const std::filesystem::path& image) {
    const ProgressMode mode = run.console.progress();
    if (mode == ProgressMode::Json)
      return run.console.event({{"event", "caption"}, {"done", done}, {"total", total}, {"image", image.string()}});
    if (done == total || mode == ProgressMode::Off) return;
    const std::string line = fmt::format("caption {}/{}  {}", done + 1, total, image.filename().string());
    if (mode == ProgressMode::Bar) run.console.status(line);
    else run.console.note(line);
  };
  const CaptionReport report = caption_images(options, *describer, run, is_interrupted, show);
  run.console.clear_status();
  for (const std::string& failure : report.failed) run.console.warn("left out: " + failure);
  const int status = report.failed.empty() ? 0 : exit_code(ErrorCode::BadFile);
  if (run.console.json()) {
    run.console.result(json_text({{"folder", options.folder.string()},
                                  {"images", report.images},
                                  {"written", report.written},
                                  {"kept", report.kept},
                                  {"failed", report.failed},
                                  {"by", describer->way()},
                                  {"model", describer->model()},
                                  {"warnings", run.console.warnings()}}));
    return status;
  }
  run.console.result(
      fmt::format("{} captions written, {} kept, {} images left out", report.written, report.kept, report.failed.size()));
  return status;
}

}  // namespace flux2
