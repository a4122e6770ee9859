#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "cli/command.h"
#include "cli/component_text.h"
#include "cli/folders.h"
#include "cli/interrupt.h"
#include "hub/model_files.h"
#include "hub/recognise.h"
#include "hub/synth.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// A model or part that lies in one of the model folders.
struct Found {
  fs::path path;
  std::vector<std::string> parts;
  std::string state;  // "ready", or what is wrong
  bool bundled = false;
};

Found describe(const fs::path& path, const Log& log) {
  try {
    const Recognition recognition = recognise(path, log);
    Found found{path, {}, "ready"};
    for (const Component& c : recognition.components) {
      found.parts.push_back(component_text(c));
      if (!c.usable()) found.state = c.problem;
    }
    if (found.parts.empty()) found.parts.push_back(name_of(recognition.kind));
    return found;
  } catch (const Error& e) {
    return {path, {"damaged"}, e.what()};
  }
}

int list_models(Invocation& run) {
  std::vector<Found> found;
  const auto folders = model_folders(run.environment, run.project, run.user);
  for (const fs::path& folder : folders) {
    std::error_code ignored;
    std::vector<fs::path> entries;
    for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored))
      if (entry->is_directory(ignored) || entry->path().extension() == ".safetensors" ||
          entry->path().extension() == ".gguf")
        entries.push_back(entry->path());
    std::sort(entries.begin(), entries.end());
    for (const fs::path& entry : entries) found.push_back(describe(entry, run.console.log()));
  }
  if (const fs::path bundled = bundled_model(run.environment); !bundled.empty()) {
    found.push_back(describe(bundled, run.console.log()));
    found.back().bundled = true;
  }
  if (run.console.json()) {
    Json json = Json::array();
    for (const Found& f : found)
      json.push_back({{"path", f.path.string()}, {"parts", f.parts}, {"state", f.state}, {"bundled", f.bundled}});
    run.console.result(json.dump(2, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  for (const Found& f : found)
    run.console.result(fmt::format("{}{}: {}\n    {}", f.path.string(), f.bundled ? " (bundled)" : "", f.state,
                                   fmt::join(f.parts, "\n    ")));
  if (found.empty()) run.console.note("no model was found");
  for (const fs::path& folder : folders) run.console.note("looked in " + folder.string());
  return 0;
}

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
      good = second == std::errc() && last == end && counts[0] >= 0 && counts[1] >= 0 && counts[0] <= 1000 &&
             counts[1] <= 1000;
    }
    check(good, "--blocks: \"{}\" is not two numbers like 5,20", text);
    options.double_blocks = counts[0];
    options.single_blocks = counts[1];
  }
  return options;
}

int synthesise(Invocation& run) {
  const SynthOptions options = synth_options(run);
  synthesise_model(
      options,
      [&](const SynthProgress& progress) {
        if (interrupt_signal() != 0) throw Error(ErrorCode::Cancelled, "stopped");
        if (run.console.progress() == ProgressMode::Bar && progress.total > 0)
          run.console.status(
              fmt::format("{} {:.0f} %", progress.file,
                          100.0 * static_cast<double>(progress.bytes) / static_cast<double>(progress.total)));
      },
      run.console.log());
  run.console.clear_status();
  if (run.console.json())
    run.console.result(Json{{"path", options.out.string()}, {"warnings", run.console.warnings()}}.dump());
  else run.console.result(options.out.string());
  return 0;
}

}  // namespace

int run_models(Invocation& run) {
  const std::string action = run.positional.empty() ? "list" : run.positional[0];
  check(run.positional.size() <= 1, "unexpected argument \"{}\"", run.positional.back());
  if (action == "list") return list_models(run);
  if (action == "synth") return synthesise(run);
  for (const char* later : {"info", "scan", "identify", "install", "remove", "verify", "missing", "orphans", "starter"})
    if (action == later) fail(ErrorCode::InvalidArgument, "models {} is not available yet in this version", action);
  fail(ErrorCode::InvalidArgument, "models knows list and synth, not \"{}\"", action);
}

}  // namespace flux2
