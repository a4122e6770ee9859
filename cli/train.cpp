#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "app/training.h"
#include "app/training_plan.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/progress_display.h"
#include "cli/train_arguments.h"
#include "cli/train_messages.h"
#include "cli/training_display.h"
#include "cli/user_input.h"
#include "train/log/report.h"
#include "train/ranks/local_ranks.h"
#include "train/train_options.h"

namespace flux2 {

namespace {

volatile std::sig_atomic_t save_asked = 0;

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

OptionSpec option_of(const TrainField& field) {
  OptionSpec option{.name = with_dashes(field.name), .value = field.value, .help = field.help, .repeatable = field.is_list()};
  option.words = field.words;
  return option;
}

// The words that started this process.
std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  require(!words.empty(), "the command line of this process cannot be read");
  return words;
}

// Calls f. The errors of its options name them as the command line does.
template <class F>
auto naming_options(F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(e.code(), with_option_names(e.what()), e.hint());
  }
}

int run_train_report(Invocation& run) {
  check(run.positional.size() == 1, "train report needs the output folder of a training run");
  const std::filesystem::path folder = run.positional[0];
  std::filesystem::path log;  // the newest one
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable))
    if (entry.path().extension() == ".jsonl" && (log.empty() || entry.last_write_time() > std::filesystem::last_write_time(log)))
      log = entry.path();
  if (log.empty()) fail(ErrorCode::NotFound, "{} contains no log of a training run (NAME.jsonl)", folder.string());
  write_report(log, folder / "report.html");
  run.console.result_path((folder / "report.html").string());
  return 0;
}

int run_plan_train(Invocation& run) {
  const TrainingForecast f =
      naming_options([&] { return plan_training(training_request(run.settings), given_train_options(run), run); });
  const TrainingMemory& m = f.memory;
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  if (run.console.json()) {
    run.console.result(Json{
        {"model", f.model},
        {"device", f.device},
        {"images", f.images},
        {"width", f.width},
        {"height", f.height},
        {"batch", f.batch},
        {"tokens", f.tokens},
        {"weight_bytes", m.weights},
        {"pool_bytes", m.pool},
        {"peak_bytes", m.peak()},
        {"limit_bytes", m.limit},
        {"fits", m.fits()},
        {"activations", m.str()},
        {"streamed_blocks", m.streamed.size()},
        {"steps", f.steps},
        {"seconds_per_step", f.seconds_per_step},
        {"seconds",
         f.seconds()}}.dump(-1, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  run.console.result(fmt::format("{} on {}", f.model, f.device));
  run.console.result(fmt::format("{} images; the largest batch has {} of {}x{}, {} tokens each", f.images, f.batch, f.width,
                                 f.height, f.tokens));
  run.console.result(
      fmt::format("memory   {:6.2f} GiB: weights {:.2f}, adapter, optimiser and activations {:.2f}, program {:.2f}",
                  gib(m.peak()), gib(m.weights), gib(m.pool), gib(m.overhead)));
  run.console.result(fmt::format("of       {:6.2f} GiB{}", gib(m.limit), m.fits() ? "" : ": does not fit"));
  run.console.result("where    " + m.str());
  run.console.result(
      fmt::format("time     {:.2f} s a step, {} steps: {}", f.seconds_per_step, f.steps, TrainingDisplay::duration(f.seconds())));
  if (!m.streamed.empty()) run.console.result("         streamed blocks may add to this time");
  if (!m.fits())
    run.console.result("--gradient_checkpointing, --fp8_base --fp8_scaled, a smaller resolution or batch_size need less memory");
  return 0;
}

std::vector<OptionGroup> report_options() {
  std::vector<OptionGroup> groups;
  for (OptionGroup& group : generate_options())
    if (group.title == "Messages") groups.push_back(std::move(group));
  return groups;
}

}  // namespace

GivenTrainOptions given_train_options(const Invocation& run) {
  const bool named = !run.positional.empty() && !run.settings.has("dataset-config");  // `flux2 train data.toml`
  check(run.positional.size() <= (named ? 1u : 0u), "unexpected argument \"{}\"",
        run.positional.empty() ? "" : run.positional.back());
  GivenTrainOptions given;
  for (const TrainField& field : train_fields())
    if (const Setting* set = run.settings.find(with_dashes(field.name)); set && !set->is_default) given[field.name] = set->values;
  for (const IgnoredTrainOption& o : ignored_train_options())
    if (run.settings.has(with_dashes(o.name))) given[o.name] = {""};
  if (named) given["dataset_config"] = {run.positional[0]};
  return given;
}

std::vector<OptionGroup> train_options() {
  std::vector<OptionGroup> groups;
  for (const TrainField& field : train_fields()) {
    if (groups.empty() || groups.back().title != field.group) {
      const auto found = std::find_if(groups.begin(), groups.end(), [&](const OptionGroup& g) { return g.title == field.group; });
      if (found != groups.end()) {
        found->options.push_back(option_of(field));
        continue;
      }
      groups.push_back({field.group, {}});
    }
    groups.back().options.push_back(option_of(field));
  }
  OptionGroup ignored{"Without effect, or refused", {}};
  for (const IgnoredTrainOption& o : ignored_train_options())
    ignored.options.push_back(
        {.name = with_dashes(o.name), .value = o.value, .help = (o.refused ? "refused: " : "no effect: ") + o.reason});
  for (OptionGroup& group : generate_options())
    if (group.title == "Model" || group.title == "Device and memory" || group.title == "Messages")
      groups.push_back(std::move(group));
  groups.push_back(std::move(ignored));
  set_common(groups, {"dataset-config", "preset", "max-train-steps", "learning-rate", "network-dim", "network-alpha",
                      "timestep-sampling", "gradient-checkpointing", "output-dir", "output-name", "save-every-n-steps",
                      "save-state", "resume", "sample-prompts", "sample-every-n-steps", "model", "device", "help", "help-all"});
  return groups;
}

const std::vector<Command>& plan_actions() {
  static const std::vector<Command> list = {
      {"train",
       {},
       "forecast the memory and time of training",
       "[DATASET.toml] [options of train]",
       train_options,
       {"flux2 plan train cats.toml --preset character",
        "flux2 plan train cats.toml -m flux.2-klein-base-9b --network_dim 32 --fp8_base --fp8_scaled",
        "flux2 plan train cats.toml --json"},
       run_plan_train,
       "Counts memory by rehearsing a step on a device that computes nothing, and measures time "
       "by training single blocks for a moment.",
       true}};
  return list;
}

const std::vector<Command>& train_actions() {
  static const std::vector<Command> list = {
      {"report",
       {},
       "write report.html again from the log of a run",
       "FOLDER",
       report_options,
       {"flux2 train report training", "flux2 train report out/fox", "flux2 train report ."},
       run_train_report}};
  return list;
}

int run_train(Invocation& run) {
  const GivenTrainOptions given = given_train_options(run);

  // One process for each rank, unless a launcher has started them already.
  std::unique_ptr<LocalRanks> others;
  if (const auto ranks = given.find("ranks"); ranks != given.end() && !rank_from_environment()) {
    TrainOptions parsed;
    naming_options([&] { set_train_option(parsed, *find_train_field("ranks"), ranks->second); });
    if (parsed.ranks > 1) others = start_local_ranks(own_command_line(), static_cast<int>(parsed.ranks));
  }
  std::signal(SIGUSR1, [](int) { save_asked = 1; });
  ProgressDisplay display(run.console);
  TrainingDisplay training(run.console);
  TrainingFrontEnd front;
  // Among several processes, the first one speaks.
  const std::optional<RankPlace> place = others ? std::optional(others->place()) : rank_from_environment();
  const bool speaks = !place || place->rank == 0;
  front.progress = display.progress();
  if (!speaks) front.progress.report = {};
  front.on_event = [&](const Json& event) { training.at(event); };
  front.stop = [] {
    if (interrupt_signal() != 0) return StopRequest::End;
    if (save_asked != 0) {
      save_asked = 0;
      return StopRequest::Save;
    }
    return StopRequest::None;
  };
  front.tell = [&](const std::string& line) {
    display.finish();
    run.console.note(line);
  };
  const TrainingResult result = naming_options([&] { return train(training_request(run.settings), given, run, front, place); });
  if (others) others->wait();
  display.finish();
  run.console.clear_status();
  if (result.file.empty()) return 0;  // only shown, nothing trained
  if (run.console.json()) {
    run.console.result(Json{{"file", result.file.string()},
                            {"report", result.report.string()},
                            {"reason", name_of(result.end.reason)},
                            {"step", result.end.step},
                            {"warnings", run.console.warnings()}}
                           .dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    run.console.result_path(result.file.string());
  }
  switch (result.end.reason) {
    case RunEndReason::Interrupted:
      run.console.note("stopped; continue with --resume");
      return interrupt_signal() != 0 ? 128 + interrupt_signal() : 1;
    case RunEndReason::Nan: fail(ErrorCode::InvalidArgument, "training stopped: {}", result.end.message);
    case RunEndReason::Time: run.console.note("the time limit was reached; continue with --resume"); return 0;
    default: return 0;
  }
}

}  // namespace flux2
