#include "cli/client_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/text.h"
#include "cli/client.h"
#include "cli/followed_run.h"
#include "cli/remote_dataset.h"
#include "cli/remote_server.h"
#include "cli/table.h"
#include "cli/train_arguments.h"
#include "server/jobs/training_request.h"
#include "train/sample_prompts.h"
#include "train/train_options.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

// What `client train` takes itself although the server sets it for its runs.
constexpr std::string_view kTakenHere[] = {"dataset_config", "config_file", "preset", "output_dir", "output_name"};

bool is_taken_here(std::string_view name) {
  return std::find(std::begin(kTakenHere), std::end(kTakenHere), name) != std::end(kTakenHere);
}

std::string taken(GivenTrainOptions& given, const std::string& name) {
  const auto found = given.find(name);
  if (found == given.end()) return {};
  std::string text = found->second.empty() ? "" : found->second.back();
  given.erase(found);
  return text;
}

Json prompt_to_json(const SamplePrompt& prompt) {
  check(prompt.references.empty() && prompt.image_prompts.empty(),
        "a sample prompt with an image of this machine cannot be sent to a server");
  Json json = {{"prompt", prompt.prompt}, {"negative_prompt", prompt.negative}};
  if (prompt.width) json["width"] = *prompt.width;
  if (prompt.height) json["height"] = *prompt.height;
  if (prompt.steps) json["sample_steps"] = *prompt.steps;
  if (prompt.seed) json["seed"] = *prompt.seed;
  if (prompt.guidance) json["guidance_scale"] = *prompt.guidance;
  if (prompt.flow_shift) json["discrete_flow_shift"] = *prompt.flow_shift;
  return json;
}

// The options in the types of the training request; each is checked before anything is sent.
Json options_for_server(const GivenTrainOptions& given) {
  Json options = Json::object();
  for (const auto& [name, texts] : given) {
    const TrainField* field = find_train_field(name);
    if (!field || is_servers_own_option(field->name)) fail(ErrorCode::InvalidArgument, "{} cannot be sent to a server", name);
    if (field->name == "sample_prompts") {
      for (const SamplePrompt& prompt : read_sample_prompts(texts.back())) options[name].push_back(prompt_to_json(prompt));
      continue;
    }
    TrainOptions scratch;
    set_train_option(scratch, *field, texts);
    options[field->name] = train_options_json(scratch).at(field->name);
  }
  return options;
}

struct RunToSend {
  Json body;
  fs::path folder;  // where the adapter goes
};

RunToSend run_to_send(Invocation& run, const RemoteServer& server) {
  GivenTrainOptions given = with_config_file(given_train_options(run));
  const std::string local = taken(given, "dataset_config"), there = run.settings.text("remote-dataset");
  check(local.empty() != there.empty(), "{}",
        local.empty() ? "name a dataset: a dataset file or a folder of images here, or --remote-dataset PATH on the server"
                      : "use a dataset of this machine or --remote-dataset, not both");
  RunToSend send;
  const fs::path source = local.empty() ? there : local;
  std::string name = taken(given, "output_name");
  if (name.empty()) name = (source.has_filename() ? source : source.parent_path()).stem().string();
  send.folder = taken(given, "output_dir");
  send.body = {{"name", name}};
  if (const std::string preset = taken(given, "preset"); !preset.empty()) send.body["preset"] = preset;
  if (const std::string model = run.settings.text("model"); !model.empty()) send.body["model"] = model;
  send.body["options"] = options_for_server(given);
  send.body["dataset"] = local.empty() ? Json{{"path", there}} : uploaded_dataset(local, server, run);
  return send;
}

// The newest checkpoint, or that of a step. Nothing if there is none.
std::optional<fs::path> downloaded(Invocation& run, const RemoteServer& server, const Json& followed, const fs::path& target,
                                   std::optional<int64_t> step = {}) {
  const std::string path = run_path(followed);
  const Json list = server.ask("GET", path + "/checkpoints")["items"];
  const Json* found = nullptr;
  for (const Json& one : list)
    if (step ? one["step"] == *step : !found || one["step"] >= (*found)["step"]) found = &one;
  if (!found) return std::nullopt;
  std::error_code failure;
  const bool is_folder =
      target.empty() || !target.has_filename() || fs::is_directory(target, failure) || target.extension().empty();
  const std::string file =
      followed["name"].get<std::string>() + (step ? fmt::format("-step{:08}", *step) : std::string()) + ".safetensors";
  const fs::path to = is_folder ? target / file : target;
  run.console.status("downloading " + to.string());
  server.download(fmt::format("{}/checkpoints/{}/file", path, (*found)["step"].get<int64_t>()), to);
  run.console.clear_status();
  return to;
}

int report_run(Invocation& run, const RemoteServer& server, const FollowedRun& followed, const fs::path& folder) {
  const Json& ended = followed.run;
  const std::string id = ended["id"].get<std::string>(), state = ended["state"].get<std::string>();
  if (followed.signal != 0) {
    run.console.note(
        fmt::format("detached; the run continues on the server. `flux2 client attach {}` follows it again, "
                    "`flux2 client stop {}` ends it",
                    id, id));
    return 128 + followed.signal;
  }
  if (state == "failed") {
    const Json error = ended.value("error", Json(nullptr));
    throw Error(ErrorCode::Network,
                "the run failed: " + (error.is_object() ? error.value("message", std::string("unknown error")) : "unknown error"),
                Hint(error.is_object() && error.contains("hint") && error["hint"].is_string() ? error["hint"].get<std::string>()
                                                                                              : std::string()));
  }
  std::optional<fs::path> file;
  if (state == "paused")
    run.console.note(
        fmt::format("the run is paused at step {}; `flux2 client resume {}` continues it", ended["step"].get<int64_t>(), id));
  else file = downloaded(run, server, ended, folder);
  if (run.console.json())
    run.console.result(pretty({{"run", id},
                               {"state", state},
                               {"step", ended["step"]},
                               {"loss_avg", ended["loss_avg"]},
                               {"file", file ? Json(file->string()) : Json(nullptr)}}));
  else if (file) run.console.result_path(file->string());
  return 0;
}

int run_remote_train(Invocation& run) {
  const RemoteServer server(run);
  const RunToSend send = run_to_send(run, server);
  const Json started = server.ask("POST", "/api/v1/training", send.body);
  run.console.note(fmt::format("started {} ({})", started["id"].get<std::string>(), started["name"].get<std::string>()));
  return report_run(run, server, follow_run(run, server, started), send.folder);
}

std::string one_run(const Invocation& run) {
  check(run.positional.size() == 1, "name one training run: run_… or its name");
  return run.positional.front();
}

int run_remote_attach(Invocation& run) {
  const RemoteServer server(run);
  const Json found = find_run(server, one_run(run));
  return report_run(run, server, follow_run(run, server, found), run.settings.text("output"));
}

std::string figures_of(const Json& run) {
  std::string text = fmt::format("{}/{}", run["step"].get<int64_t>(), run["steps"].get<int64_t>());
  if (run["loss_avg"].is_number()) text += fmt::format("  loss {:.4f}", run["loss_avg"].get<double>());
  return text;
}

int run_remote_runs(Invocation& run) {
  const Json list = RemoteServer(run).ask("GET", "/api/v1/training?limit=50");
  if (run.console.json()) {
    run.console.result(pretty(list));
    return 0;
  }
  for (const Json& one : list["items"])
    run.console.result(fmt::format("{}  {:<10} {:<20} {}", one["id"].get<std::string>(), one["state"].get<std::string>(),
                                   one["name"].get<std::string>(), figures_of(one)));
  if (list["items"].empty()) run.console.note("no training runs yet");
  return 0;
}

int change_run_state(Invocation& run, const char* action, const Json& body = nullptr) {
  const RemoteServer server(run);
  const Json changed = server.ask("POST", run_path(find_run(server, one_run(run))) + "/" + action, body);
  if (run.console.json()) run.console.result(pretty(changed));
  else run.console.result(fmt::format("{} is {}", changed["id"].get<std::string>(), changed["state"].get<std::string>()));
  return 0;
}

int run_remote_pause(Invocation& run) { return change_run_state(run, "pause"); }
int run_remote_resume(Invocation& run) { return change_run_state(run, "resume"); }
int run_remote_stop(Invocation& run) { return change_run_state(run, "stop", {{"save", !run.settings.flag("discard")}}); }

int run_remote_checkpoints(Invocation& run) {
  const RemoteServer server(run);
  const Json list = server.ask("GET", run_path(find_run(server, one_run(run))) + "/checkpoints");
  if (run.console.json()) {
    run.console.result(pretty(list));
    return 0;
  }
  for (const Json& one : list["items"])
    run.console.result(fmt::format("{:>8}  {:>10}  {}{}", one["step"].get<int64_t>(), byte_text(one["bytes"].get<uint64_t>()),
                                   one["path"].get<std::string>(), one["kept"] == true ? "  kept" : ""));
  if (list["items"].empty()) run.console.note("no checkpoints yet");
  return 0;
}

int run_remote_download(Invocation& run) {
  const RemoteServer server(run);
  std::optional<int64_t> step;
  if (const std::string text = run.settings.text("step"); !text.empty()) {
    int64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    check(failure == std::errc() && end == text.data() + text.size() && value >= 0, "--step {}: must be a whole number",
          printable(text));
    step = value;
  }
  const Json found = find_run(server, one_run(run));
  const auto file = downloaded(run, server, found, run.settings.text("output"), step);
  if (!file)
    throw Error(ErrorCode::NotFound,
                step ? fmt::format("the run has no checkpoint at step {}", *step) : "the run has no checkpoint",
                Hint(fmt::format("`flux2 client checkpoints {}` lists them", found["id"].get<std::string>())));
  if (run.console.json()) run.console.result(pretty({{"run", found["id"]}, {"file", file->string()}}));
  else run.console.result_path(file->string());
  return 0;
}

// The table of `flux2 train` without what the server sets for its runs and without what concerns its devices.
std::vector<OptionGroup> client_train_options() {
  std::vector<OptionGroup> groups;
  for (OptionGroup& group : train_options()) {
    if (group.title == "Device and memory" || group.title == "Model" || group.title == "Without effect, or refused") continue;
    std::erase_if(group.options, [](const OptionSpec& o) {
      const TrainField* field = o.field ? nullptr : find_train_field(o.name);
      return field && is_servers_own_option(field->name) && !is_taken_here(field->name);
    });
    if (!group.options.empty()) groups.push_back(std::move(group));
  }
  groups.insert(groups.begin(),
                {"Run",
                 {{.name = "remote-dataset", .value = "PATH", .help = "a dataset file or a folder of images on the server"},
                  option("model", 'm', "a model of the server")}});
  return with_server_options(std::move(groups));
}

std::vector<OptionGroup> run_options() { return with_server_options({version_options().front()}); }

std::vector<OptionGroup> stop_options() {
  return with_server_options(
      {{"Run", {{.name = "discard", .help = "write nothing more: no adapter and no state"}}}, version_options().front()});
}

std::vector<OptionGroup> download_options() {
  return with_server_options({{"Output",
                               {option("output", 'o', "file or folder"),
                                {.name = "step", .value = "N", .help = "the checkpoint of this step instead of the newest"}}},
                              version_options().front()});
}

}  // namespace

std::vector<Command> with_training_actions(std::vector<Command> actions) {
  const std::vector<Command> more = {
      {"train",
       {},
       "train an adapter on the server and save it here",
       "[DATASET.toml|FOLDER] [options of train]",
       client_train_options,
       {"flux2 client train cats.toml --preset character",
        "flux2 client train photos/ --url https://gpu.example.org --api-key @key.txt --output_name cats --max_train_steps 1000",
        "flux2 client train --remote-dataset /data/cats.toml -m flux.2-klein-base-4b --network_dim 16"},
       run_remote_train,
       "Sends the images and captions of a dataset to the server, or uses a dataset that is there. Shows the loss and the "
       "remaining "
       "time, and downloads the adapter. Ctrl-C only detaches: the run continues on the server, and `flux2 client attach` "
       "follows it again."},
      {"attach",
       {},
       "follow a training run and save its adapter here",
       "RUN [-o PATH]",
       client_options,
       {"flux2 client attach cats", "flux2 client attach run_01JD0000000000000000000000 -o adapters/",
        "flux2 client attach cats --json"},
       run_remote_attach},
      {"runs",
       {},
       "list the newest training runs",
       "",
       run_options,
       {"flux2 client runs", "flux2 client runs --json", "flux2 client runs --url http://gpu:8190"},
       run_remote_runs},
      {"pause",
       {},
       "save the state of a training run and free the device",
       "RUN",
       run_options,
       {"flux2 client pause cats", "flux2 client pause run_01JD0000000000000000000000", "flux2 client pause cats --json"},
       run_remote_pause},
      {"resume",
       {},
       "continue a training run from its last state",
       "RUN",
       run_options,
       {"flux2 client resume cats", "flux2 client resume run_01JD0000000000000000000000", "flux2 client resume cats --json"},
       run_remote_resume},
      {"stop",
       {},
       "end a training run",
       "RUN [--discard]",
       stop_options,
       {"flux2 client stop cats", "flux2 client stop cats --discard", "flux2 client stop cats --json"},
       run_remote_stop},
      {"checkpoints",
       {},
       "list the saved adapters of a training run",
       "RUN",
       run_options,
       {"flux2 client checkpoints cats", "flux2 client checkpoints run_01JD0000000000000000000000",
        "flux2 client checkpoints cats --json"},
       run_remote_checkpoints},
      {"download",
       {},
       "save an adapter of a training run here",
       "RUN [--step N] [-o PATH]",
       download_options,
       {"flux2 client download cats", "flux2 client download cats --step 500 -o cats-500.safetensors",
        "flux2 client download run_01JD0000000000000000000000 -o adapters/"},
       run_remote_download}};
  actions.insert(actions.end(), more.begin(), more.end());
  return actions;
}

}  // namespace flux2
