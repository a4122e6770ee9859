#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "app/training_data.h"
#include "cli/models/models.h"
#include "cli/user_input.h"
#include "hub/create_model.h"
#include "hub/synth_clip.h"

namespace flux2 {

namespace {

SynthOptions synth_options(const Invocation& run) {
  const Settings& settings = run.settings;
  SynthOptions options;
  options.variant = settings.text("variant", "tiny");
  options.layout = settings.choice("layout", {"bfl", "diffusers"}, "bfl") == "bfl" ? SynthOptions::Layout::Bfl
                                                                                   : SynthOptions::Layout::Diffusers;
  options.dtype = settings.choice("dtype", {"bf16", "f32"}, "bf16") == "bf16" ? DType::BF16 : DType::F32;
  options.seed = static_cast<uint64_t>(settings.integer("seed", 0, INT64_MAX).value_or(0));
  options.base = settings.flag("base");
  options.needed_layers_only = settings.flag("needed-layers");
  options.tokenizer = settings.text("tokenizer");
  if (const auto width = settings.integer("vae-width", 32, 1024))
    options.vae = VaeConfig{.encoder_widths = {*width, 2 * *width, 4 * *width, 4 * *width},
                            .decoder_widths = {*width, 2 * *width, 4 * *width, 4 * *width}};
  options.out = settings.text("out");
  check(!options.out.empty(), "models synth needs --out FOLDER");
  if (const Setting* blocks = settings.find("blocks")) {
    int counts[2] = {};
    const std::string& text = blocks->values.back();
    const char* end = text.data() + text.size();
    const auto [comma, first] = std::from_chars(text.data(), end, counts[0]);
    bool good = first == std::errc() && comma < end && *comma == ',';
    if (good) {
      const auto [last, second] = std::from_chars(comma + 1, end, counts[1]);
      good = second == std::errc() && last == end && counts[0] >= 0 && counts[1] >= 0 && counts[0] <= 1000 && counts[1] <= 1000;
    }
    check(good, "--blocks: \"{}\" is not two numbers like 5,20", text);
    options.double_blocks = counts[0];
    options.single_blocks = counts[1];
  }
  return options;
}

std::function<void(const SynthProgress&)> shown_progress(Invocation& run) {
  return [&run](const SynthProgress& progress) {
    if (interrupt_signal() != 0) throw Error(ErrorCode::Cancelled, "stopped");
    if (run.console.progress() == ProgressMode::Bar && progress.total > 0)
      run.console.status(fmt::format("{} {:.0f} %", progress.file,
                                     100.0 * static_cast<double>(progress.bytes) / static_cast<double>(progress.total)));
  };
}

int print_folder(Invocation& run, const std::filesystem::path& folder) {
  run.console.clear_status();
  if (run.console.json())
    run.console.result(Json{{"path", folder.string()}, {"warnings", run.console.warnings()}}.dump(
        -1, ' ', false, Json::error_handler_t::replace));
  else run.console.result(folder.string());
  return 0;
}

int write_model(Invocation& run, const SynthOptions& options) {
  synthesise_model(options, shown_progress(run), run.console.log());
  return print_folder(run, options.out);
}

int write_clip(Invocation& run, const ClipConfig& config) {
  const Settings& settings = run.settings;
  for (const char* option : {"blocks", "vae-width", "layout", "base", "needed-layers", "tokenizer"})
    check(!settings.has(option), "--{} does not apply to {}, which is an image encoder", option, settings.text("variant"));
  const std::filesystem::path out = settings.text("out");
  check(!out.empty(), "models synth needs --out FOLDER");
  const DType dtype = settings.choice("dtype", {"bf16", "f32"}, "f32") == "bf16" ? DType::BF16 : DType::F32;
  const auto seed = static_cast<uint64_t>(settings.integer("seed", 0, INT64_MAX).value_or(0));
  write_random_clip(out, config, {.seed = seed, .dtype = dtype, .progress = shown_progress(run)});
  run.console.log().info("wrote an image encoder with random weights to {}", out.string());
  return print_folder(run, out);
}

}  // namespace

int run_models_synth(Invocation& run) {
  refuse_arguments(run);
  if (const auto clip = synthetic_clip(run.settings.text("variant"))) return write_clip(run, *clip);
  return write_model(run, synth_options(run));
}

int run_models_create(Invocation& run) {
  check(run.positional.size() <= 1, "give one description, not {}", run.positional.size());
  const Json description = run.positional.empty() ? Json::object() : read_json_or_toml(run.positional[0]);
  SynthOptions options =
      in_context(run.positional.empty() ? "model" : run.positional[0], [&] { return model_from_description(description); });
  options.out = run.settings.text("out");
  check(!options.out.empty(), "models create needs --out FOLDER");
  options.tokenizer = run.settings.text("tokenizer");
  options.seed = static_cast<uint64_t>(run.settings.integer("seed", 0, INT64_MAX).value_or(0));
  options.dtype = run.settings.choice("dtype", {"bf16", "f32"}, "bf16") == "bf16" ? DType::BF16 : DType::F32;
  return write_model(run, options);
}

}  // namespace flux2
