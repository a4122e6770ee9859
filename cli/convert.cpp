#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "app/convert_part.h"
#include "base/text.h"
#include "cli/calibration.h"
#include "cli/command.h"
#include "cli/user_input.h"
#include "hub/convert_upscaler.h"

namespace flux2 {

namespace {

// A name without the ending of a file is a folder.
bool names_a_folder(const std::filesystem::path& out) {
  std::error_code unreadable;
  return out.extension() != ".gguf" && out.extension() != ".safetensors" &&
         (out.extension().empty() || std::filesystem::is_directory(out, unreadable));
}

ConvertOptions options_of(const Invocation& run) {
  const Settings& settings = run.settings;
  const bool qwen_fp8 = settings.flag("fp8-text-encoder");
  ConvertOptions options;
  options.out = settings.text("out");
  check(!options.out.empty(), "convert needs -o FILE");
  options.as_folder = names_a_folder(options.out);
  const bool gguf = options.out.extension() == ".gguf";
  check(gguf || options.as_folder || options.out.extension() == ".safetensors", "{} does not end in .gguf or .safetensors",
        options.out.string());
  const std::string layout = settings.choice("to", file_layout_names(), gguf ? "gguf" : options.as_folder ? "diffusers" : "bfl");
  options.choice.layout = file_layout_named(layout);
  check(gguf == (options.choice.layout == FileLayout::Gguf), "the file name {} does not match --to {}", options.out.string(),
        layout);
  options.choice.type = quantisation_named(settings.choice("quant", quantisation_names(), qwen_fp8 ? "fp8_block" : "keep"));
  const double gigabytes = settings.number("shard-size", 0, 1e6).value_or(10);
  if (options.as_folder) options.choice.shard_bytes = static_cast<uint64_t>(gigabytes * 1e9);
  if (const Setting* rules = settings.find("quant-rule"))
    for (const std::string& rule : rules->values) options.choice.rules.push_back(quant_rule(rule));
  options.threads = static_cast<int>(settings.integer("threads", 1, 4096).value_or(0));
  return options;
}

void print(Invocation& run, const ConvertOptions& options, ConvertReport report, const std::vector<CalibratedPicture>& pictures) {
  std::stable_sort(report.changed.begin(), report.changed.end(), [](const auto& a, const auto& b) { return a.error > b.error; });
  if (run.console.json()) {
    Json changed = Json::array();
    for (const ConvertedTensor& t : report.changed)
      changed.push_back({{"name", t.name}, {"from", t.from}, {"to", t.to}, {"error", t.error}});
    Json result = {{"path", options.out.string()},        {"bytes", report.bytes},       {"tensors", report.tensors},
                   {"resumed_from", report.resumed_from}, {"error", report.total_error}, {"changed", changed},
                   {"warnings", run.console.warnings()}};
    if (!pictures.empty()) result["pictures"] = as_json(pictures);
    run.console.result(result.dump(2, ' ', false, Json::error_handler_t::replace));
    return;
  }
  run.console.result(options.out.string());
  if (report.resumed_from > 0)
    run.console.note(fmt::format("continued after {} MB of an earlier run", report.resumed_from >> 20));
  run.console.note(fmt::format("{} tensors, {} MB; {} changed type, relative error {:.2g} over all of them", report.tensors,
                               report.bytes >> 20, report.changed.size(), report.total_error));
  const size_t shown = run.settings.flag("report") ? report.changed.size() : std::min<size_t>(report.changed.size(), 3);
  for (size_t i = 0; i < shown; ++i) {
    const ConvertedTensor& t = report.changed[i];
    run.console.note(fmt::format("  {:<56} {} → {}  {:.2g}", t.name, t.from, t.to, t.error));
  }
  if (shown < report.changed.size())
    run.console.note(fmt::format("  and {} with smaller errors; --report lists all", report.changed.size() - shown));
  for (const std::string& line : lines_of(pictures)) run.console.result(line);
}

int run_convert_upscaler(Invocation& run) {
  const std::filesystem::path in = run.positional[0], out = run.settings.text("out");
  check(out.extension() == ".safetensors", "convert --upscaler needs -o FILE.safetensors");
  const ConvertedUpscaler made = convert_upscaler(in, out);
  if (run.console.json()) {
    run.console.result(Json{{"path", out.string()},
                            {"bytes", made.bytes},
                            {"tensors", made.tensors},
                            {"scale", made.config.scale},
                            {"warnings", run.console.warnings()}}
                           .dump(2, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  run.console.result(out.string());
  run.console.note(fmt::format("{}; {} tensors, {} MB", made.config.name(), made.tensors, made.bytes >> 20));
  return 0;
}

}  // namespace

int run_convert(Invocation& run) {
  check(!run.positional.empty(), "convert needs a file or a folder");
  if (run.positional.size() > 1)
    throw Error(ErrorCode::InvalidArgument, "unexpected argument \"" + printable(run.positional[1]) + "\"",
                "-o names the result: -o " + printable(run.positional[1]));
  if (run.settings.flag("upscaler")) return run_convert_upscaler(run);
  ConvertOptions options = options_of(run);
  const std::string wanted = run.settings.choice("part", {"", "transformer", "text-encoder", "vae"},
                                                 run.settings.flag("fp8-text-encoder") ? "text-encoder" : "");
  const Recognition input = recognise(path_to_convert(run.positional[0], wanted, run), run.console.log());
  const ConvertiblePart& part = convertible_part(input, wanted);
  const Component& component = required_part(input, part.kind);
  const NamedWeights weights(open_weights(component.path, run.console.log()), part.part);
  options.progress = [&](uint64_t done, uint64_t total, const std::string& tensor) {
    if (run.console.progress() == ProgressMode::Bar)
      run.console.status(fmt::format("{:.0f} %  {}", 100.0 * static_cast<double>(done) / static_cast<double>(total), tensor));
    if (run.console.progress() == ProgressMode::Json)
      run.console.event({{"event", "convert"}, {"bytes", done}, {"total", total}, {"tensor", tensor}});
    return interrupt_signal() == 0;
  };
  if (part.part == ModelPart::TextEncoder && options.choice.layout == FileLayout::Gguf)
    add_tokenizer(component, weights, options, run.console.log());
  options.choice.training = component.training();
  std::optional<Calibration> calibration;  // first, so that a missing part is said before anything is written
  if (run.settings.has("calibrate")) calibration.emplace(run, component);
  ConvertReport report = convert_model(weights, options, run.console.log());
  run.console.clear_status();
  std::vector<CalibratedPicture> pictures;
  if (calibration) pictures = calibration->compare(options.out);
  print(run, options, std::move(report), pictures);
  return 0;
}

}  // namespace flux2
