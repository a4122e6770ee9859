#include "cli/client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "app/picture_writer.h"
#include "base/base64.h"
#include "base/text.h"
#include "cli/client_training.h"
#include "cli/options.h"
#include "cli/prepare.h"
#include "cli/progress_display.h"
#include "cli/remote_server.h"
#include "cli/table.h"
#include "cli/user_input.h"
#include "image/format.h"
#include "server/jobs/client_request.h"

namespace flux2 {

namespace {

Phase phase_named(const std::string& name) {
  for (size_t i = 0; i < kPhases; ++i)
    if (name == name_of(static_cast<Phase>(i))) return static_cast<Phase>(i);
  return Phase::Load;
}

std::string job_path(const std::string& id, const char* rest = "") { return "/api/v1/jobs/" + id + rest; }

// The images of a finished job, written as the local command would.
class ResultFiles {
 public:
  ResultFiles(Invocation& run, const RemoteServer& server)
      : run_(run), server_(server), spec_(images_of(run)), target_(spec_.output.value_or("")), writer_(new_writer()) {}

  // The format to ask the server for.
  std::string format() const { return name_of(writer_.format_for(target_)); }

  Json write(const Json& job) {
    writer_.expect(target_, static_cast<int>(job["images"].size()));
    writer_.check_targets(run_.log);
    Json files = Json::array();
    for (const Json& image : job["images"]) {
      const std::string bytes = server_.fetch(image["url"].get<std::string>());
      if (files.empty()) take_format(bytes, static_cast<int>(job["images"].size()));
      GenerationRecord record;
      record.request.seed = image["seed"].get<int64_t>();
      record.request.prompt = job["request"].value("prompt", "");
      record.request.width = image["width"].get<int64_t>();
      record.request.height = image["height"].get<int64_t>();
      const std::filesystem::path path = writer_.write_encoded(std::as_bytes(std::span(bytes)), record, target_);
      files.push_back({{"path", path.string()}, {"seed", image["seed"]}, {"width", image["width"]}, {"height", image["height"]}});
      if (!run_.console.json() && target_ != "-") run_.console.result_path(path.string());
    }
    return files;
  }

 private:
  static RequestSpec images_of(Invocation& run) {
    RequestSpec spec = run.spec();
    spec.output_type.reset();  // a server sends images
    return spec;
  }

  PictureWriter new_writer() const {
    return PictureWriter(spec_, [&run = run_](std::span<const std::byte> bytes) { run.console.result_bytes(bytes); });
  }

  // Of a job that is watched, only its images say which format was asked for.
  void take_format(const std::string& bytes, int images) {
    const auto format = sniff_format(std::as_bytes(std::span(bytes)));
    if (!format || writer_.format_for(target_) == *format) return;
    spec_.format = name_of(*format);
    spec_.defaults.insert("format");
    writer_ = new_writer();
    writer_.expect(target_, images);
    check(writer_.format_for(target_) == *format, "the images of the job are {} files: end the name {} with .{}",
          name_of(*format), target_, name_of(*format));
  }

  Invocation& run_;
  const RemoteServer& server_;
  RequestSpec spec_;
  std::string target_;
  PictureWriter writer_;
};

// Shows the progress of a job until it ends, and returns it. Ctrl-C cancels it on the server. Waits for a server that restarts.
Json watch_job(Invocation& run, const RemoteServer& server, const std::string& id) {
  ProgressDisplay display(run.console);
  Json job;
  try {
    job = server.ask("GET", job_path(id));
    // The events may end before the job: the server closes the stream of a client that is too slow, and at its own end.
    for (ServerPatience patience; !is_final_job(job);) {
      try {
        server.follow(job_path(id, "/events"), [&](const std::string& name, const Json& data) {
          if (name == "progress") display.at(phase_named(data.value("phase", "")), data.value("step", 0), data.value("steps", 0));
          return name != "job.completed" && name != "job.failed" && name != "job.cancelled";
        });
        job = server.ask("GET", job_path(id));
        patience.answered();
        if (is_final_job(job)) break;
      } catch (const Error& e) {
        if (!patience.lasts(e)) throw;
      }
      patience.wait();
    }
  } catch (const Error& e) {
    display.finish();
    if (e.code() == ErrorCode::Cancelled && interrupt_signal() != 0) {
      const int signal = interrupt_signal();
      forget_interrupt();
      server.ask("POST", job_path(id, "/cancel"));
      run.console.note("cancelled on the server");
      throw Error(ErrorCode::Cancelled, fmt::format("stopped by signal {}", signal));
    }
    throw;
  }
  display.finish();
  return job;
}

void refuse_unfinished(const Json& job) {
  if (job["state"] == "completed") return;
  const Json& error = job["error"];
  const bool refused = error.is_object() && error.value("code", "") == "content_policy_violation";
  throw Error(refused ? ErrorCode::Refused : ErrorCode::Network,
              fmt::format("the job is {}{}", job["state"].get<std::string>(),
                          error.is_object() ? ": " + error.value("message", "") : std::string()),
              Hint(error.is_object() ? error.value("hint", "") : std::string()));
}

int run_remote(Invocation& run, const char* kind) {
  const RemoteServer server(run);
  ResultFiles files(run, server);
  const auto prompts = read_prompts(run, false);
  check(prompts.size() == 1, "client sends one prompt at a time");
  check(prompts.front().settings.empty(), "client takes no options from a prompt file; put them on the command line");
  RequestSpec spec = run.spec();
  spec.prompt = prompts.front().prompt;
  std::vector<std::string> left_out;
  Json request = job_request_of(
      spec, kind,
      [&](const std::string& path) {
        const std::string bytes = read_text_file(path, {.bytes = run.limits.image.file_bytes});
        return base64_encode(std::as_bytes(std::span(bytes)));
      },
      left_out);
  for (const std::string& name : left_out)
    check(false, "{} is a setting of the server; it cannot be sent with a request", spec.origin(name));
  request["output_format"] = files.format();
  const Json submitted = server.ask("POST", "/api/v1/jobs", request);
  const std::string id = submitted["id"].get<std::string>();
  run.console.note("submitted " + id);
  const Json job = watch_job(run, server, id);
  for (const Json& warning : job["warnings"]) run.console.warn(warning.get<std::string>());
  refuse_unfinished(job);
  const Json written = files.write(job);
  if (run.console.json()) run.console.result(pretty({{"job", id}, {"images", written}, {"timings", job["timings_ms"]}}));
  return 0;
}

int run_remote_generate(Invocation& run) { return run_remote(run, run.settings.has("input") ? "edit" : "generate"); }
int run_remote_edit(Invocation& run) { return run_remote(run, "edit"); }
int run_remote_inpaint(Invocation& run) { return run_remote(run, "inpaint"); }

std::string one_job(const Invocation& run) {
  check(run.positional.size() == 1, "name one job: job_…");
  return run.positional.front();
}

int run_remote_watch(Invocation& run) {
  const RemoteServer server(run);
  const Json job = watch_job(run, server, one_job(run));
  refuse_unfinished(job);
  const Json files = ResultFiles(run, server).write(job);
  if (run.console.json()) run.console.result(pretty({{"job", job["id"]}, {"images", files}}));
  return 0;
}

int run_remote_cancel(Invocation& run) {
  const Json job = RemoteServer(run).ask("POST", job_path(one_job(run), "/cancel"));
  if (run.console.json()) run.console.result(pretty(job));
  else run.console.result(fmt::format("{} is {}", job["id"].get<std::string>(), job["state"].get<std::string>()));
  return 0;
}

int run_remote_jobs(Invocation& run) {
  const Json list = RemoteServer(run).ask("GET", "/api/v1/jobs?limit=50");
  if (run.console.json()) {
    run.console.result(pretty(list));
    return 0;
  }
  for (const Json& job : list["items"])
    run.console.result(fmt::format("{}  {:<10} {:>4.0f} %  {}", job["id"].get<std::string>(), job["state"].get<std::string>(),
                                   100 * job["progress"].get<double>(), job["request"].value("prompt", "").substr(0, 60)));
  return 0;
}

std::vector<OptionGroup> client_generate_options() { return with_server_options(without_local_options(generate_options())); }
std::vector<OptionGroup> client_inpaint_options() { return with_server_options(without_local_options(inpaint_options())); }

}  // namespace

std::vector<OptionGroup> with_server_options(std::vector<OptionGroup> groups) {
  groups.insert(groups.begin(),
                {"Server", {option("url"), option("api_key", 0, "the server's key; @FILE reads it from a file")}});
  return groups;
}

std::vector<OptionGroup> client_options() {
  return with_server_options({{"Output", {option("output", 'o')}}, version_options().front()});
}

const std::vector<Command>& client_actions() {
  static const std::vector<Command> list = with_training_actions(
      {{"generate",
        {"gen"},
        "generate images on the server and save them here",
        "[PROMPT] [options of generate]",
        client_generate_options,
        {"flux2 client generate \"a lighthouse at dusk\" -o lighthouse.png",
         "flux2 client generate --url https://gpu.example.org --api-key @key.txt \"a fox\" --batch 4 -o foxes/",
         "flux2 client generate \"a fox\" --seed 7 --json"},
        run_remote_generate},
       {"edit",
        {},
        "edit images on the server and save the results here",
        "-i IMAGE… [PROMPT] [options of edit]",
        client_generate_options,
        {"flux2 client edit -i photo.png \"make it winter\" -o winter.png",
         "flux2 client edit -i a.png -i b.png \"put the chair of image 2 into the room of image 1\"",
         "flux2 client edit -i photo.png \"at night\" --seed 3 --json"},
        run_remote_edit},
       {"inpaint",
        {},
        "regenerate part of an image on the server",
        "-i IMAGE --mask FILE [PROMPT] [options of inpaint]",
        client_inpaint_options,
        {"flux2 client inpaint -i photo.png --mask mask.png \"a red door\" -o door.png",
         "flux2 client inpaint -i photo.png --mask-box 200,120,300,300 \"an empty street\"",
         "flux2 client inpaint -i photo.png --extend 0,0,512,0 \"the street goes on\""},
        run_remote_inpaint},
       {"watch",
        {},
        "wait for a job and save its images here",
        "JOB [-o PATH]",
        client_options,
        {"flux2 client watch job_01JD0000000000000000000000", "flux2 client watch job_01JD0000000000000000000000 -o out/",
         "flux2 client watch job_01JD0000000000000000000000 --json"},
        run_remote_watch},
       {"cancel",
        {},
        "cancel a job",
        "JOB",
        client_options,
        {"flux2 client cancel job_01JD0000000000000000000000", "flux2 client cancel job_01JD0000000000000000000000 --json",
         "flux2 client cancel job_01JD0000000000000000000000 --url http://gpu:8190"},
        run_remote_cancel},
       {"jobs",
        {"list"},
        "list the newest jobs",
        "",
        client_options,
        {"flux2 client jobs", "flux2 client jobs --json", "flux2 client jobs --url http://gpu:8190"},
        run_remote_jobs}});
  return list;
}

int run_client(Invocation& run) {
  std::vector<std::string> names;
  for (const Command& action : client_actions()) names.push_back(action.name);
  check(!run.positional.empty(), "missing action. Use one of: {}", fmt::join(names, ", "));
  const std::string near = nearest_word(run.positional[0], names);
  throw Error(ErrorCode::InvalidArgument, fmt::format("unknown action \"{}\"", printable(run.positional[0])),
              near.empty() ? Hint(fmt::format("use one of {}", fmt::join(names, ", "))) : Hint("did you mean " + near + "?"));
}

}  // namespace flux2
