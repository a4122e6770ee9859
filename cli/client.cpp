#include "cli/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/picture_writer.h"
#include "base/atomic_file.h"
#include "base/base64.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/prepare.h"
#include "cli/progress_display.h"
#include "cli/table.h"
#include "cli/user_input.h"
#include "image/format.h"
#include "net/http.h"
#include "net/url.h"
#include "server/jobs/job_request.h"

namespace flux2 {

namespace {

constexpr double kAnswerSeconds = 60;
constexpr double kQuietSeconds = 60;  // an event stream sends a comment every 15 s

// One server, as the commands use it.
class RemoteServer {
 public:
  explicit RemoteServer(const Invocation& run) : client_(http_settings(run.environment)) {
    url_ = run.settings.text("url", "http://127.0.0.1:8190");
    while (url_.ends_with('/')) url_.pop_back();
    check(url_.starts_with("http://") || url_.starts_with("https://"), "--url {}: an address begins with http:// or https://",
          printable(url_));
    key_ = run.settings.text("api-key");
    if (key_.starts_with('@')) key_ = std::string(trimmed(read_text_file(key_.substr(1), {.bytes = 1 << 16})));
  }

  const std::string& url() const { return url_; }

  Json ask(const std::string& method, const std::string& path, const Json& body = nullptr) const {
    HttpRequest request = to(method, path);
    if (!body.is_null()) {
      request.headers.push_back({"content-type", "application/json"});
      request.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    const HttpAnswer answer = client_.send(request);
    refuse_failure(answer);
    return answer.body.empty() ? Json(nullptr) : parse_json(answer.body);
  }

  std::string fetch(const std::string& path) const {
    HttpRequest request = to("GET", path);
    request.max_body = size_t{1} << 30;
    HttpAnswer answer = client_.send(request);
    refuse_failure(answer);
    return std::move(answer.body);
  }

  // Calls `take` for every event until it returns false or the stream ends.
  void follow(const std::string& path, const std::function<bool(const std::string& name, const Json& data)>& take) const {
    HttpRequest request = to("GET", path);
    request.idle_timeout_s = kQuietSeconds;
    std::string text;
    bool ended = false;
    const HttpSink sink{.begin = {}, .data = [&](std::span<const std::byte> bytes) {
                          text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                          for (size_t end = text.find("\n\n"); end != text.npos && !ended; end = text.find("\n\n")) {
                            const std::string block = text.substr(0, end);
                            text.erase(0, end + 2);
                            ended = !take_event(block, take);
                          }
                          if (ended) throw StreamDone();
                        }};
    try {
      refuse_failure(client_.send(request, sink));
    } catch (const StreamDone&) {}
  }

 private:
  struct StreamDone {};

  HttpRequest to(const std::string& method, const std::string& path) const {
    HttpRequest request;
    request.method = method;
    request.url = url_ + path;
    request.token = key_;
    request.idle_timeout_s = kAnswerSeconds;
    request.cancelled = [] { return interrupt_signal() != 0; };
    return request;
  }

  static bool take_event(const std::string& block, const std::function<bool(const std::string&, const Json&)>& take) {
    std::string name, data;
    for (size_t begin = 0; begin < block.size();) {
      const size_t end = std::min(block.find('\n', begin), block.size());
      const std::string_view line = std::string_view(block).substr(begin, end - begin);
      if (line.starts_with("event: ")) name = line.substr(7);
      if (line.starts_with("data: ")) data += line.substr(6);
      begin = end + 1;
    }
    const auto json = try_parse_json(data);
    return name.empty() || !json || take(name, *json);
  }

  void refuse_failure(const HttpAnswer& answer) const {
    if (answer.failed())
      throw Error(ErrorCode::Network, fmt::format("no answer from {}: {}", url_, answer.failure),
                  Hint("start the server with {0}, or name another one with {1}", {run_command("serve"), set_option("url")}));
    if (answer.ok()) return;
    const auto body = try_parse_json(answer.body);
    std::string message = fmt::format("status {}", answer.status), hint;
    if (body && body->is_object() && body->contains("error") && (*body)["error"].is_object()) {
      message = (*body)["error"].value("message", message);
      hint = (*body)["error"].value("hint", "");
    }
    const ErrorCode code =
        answer.status == 400 || answer.status == 404 || answer.status == 409 ? ErrorCode::InvalidArgument : ErrorCode::Network;
    if (answer.status == 401) hint = "set --api-key";
    throw Error(code, "the server refused: " + message, Hint(hint));
  }

  HttpClient client_;
  std::string url_, key_;
};

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
      : run_(run),
        server_(server),
        spec_(run.spec()),
        writer_(spec_, [&run](std::span<const std::byte> bytes) { run.console.result_bytes(bytes); }) {}

  // The format to ask the server for.
  std::string format() const { return name_of(writer_.format_for(spec_.output.value_or(""))); }

  Json write(const Json& job) {
    const std::string target = spec_.output.value_or("");
    writer_.expect(target, static_cast<int>(job["images"].size()));
    writer_.check_targets();
    Json files = Json::array();
    for (const Json& image : job["images"]) {
      const std::string bytes = server_.fetch(image["url"].get<std::string>());
      GenerationRecord record;
      record.request.seed = image["seed"].get<int64_t>();
      record.request.prompt = job["request"].value("prompt", "");
      record.request.width = image["width"].get<int64_t>();
      record.request.height = image["height"].get<int64_t>();
      const std::filesystem::path path = writer_.write_encoded(std::as_bytes(std::span(bytes)), record, target);
      files.push_back({{"path", path.string()}, {"seed", image["seed"]}, {"width", image["width"]}, {"height", image["height"]}});
      if (!run_.console.json() && target != "-") run_.console.result_path(path.string());
    }
    return files;
  }

 private:
  Invocation& run_;
  const RemoteServer& server_;
  RequestSpec spec_;
  PictureWriter writer_;
};

// Shows the progress of a job until it ends, and returns it. Ctrl-C cancels it on the server.
Json watch_job(Invocation& run, const RemoteServer& server, const std::string& id) {
  ProgressDisplay display(run.console);
  try {
    server.follow(job_path(id, "/events"), [&](const std::string& name, const Json& data) {
      if (name == "progress") display.at(phase_named(data.value("phase", "")), data.value("step", 0), data.value("steps", 0));
      return name != "job.completed" && name != "job.failed" && name != "job.cancelled";
    });
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
  return server.ask("GET", job_path(id));
}

void refuse_unfinished(const Json& job) {
  if (job["state"] == "completed") return;
  const Json& error = job["error"];
  throw Error(ErrorCode::Network,
              fmt::format("the job is {}{}", job["state"].get<std::string>(),
                          error.is_object() ? ": " + error.value("message", "") : std::string()),
              Hint(error.is_object() ? error.value("hint", "") : std::string()));
}

int run_remote(Invocation& run, const char* kind) {
  const RemoteServer server(run);
  ResultFiles files(run, server);
  const auto prompts = read_prompts(run, false);
  check(prompts.size() == 1, "client sends one prompt at a time");
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

std::vector<OptionGroup> with_server(std::vector<OptionGroup> groups) {
  groups.insert(groups.begin(),
                {"Server", {option("url"), option("api_key", 0, "the server's key; @FILE reads it from a file")}});
  return groups;
}

std::vector<OptionGroup> client_generate_options() { return with_server(generate_options()); }
std::vector<OptionGroup> client_inpaint_options() { return with_server(inpaint_options()); }

}  // namespace

std::vector<OptionGroup> client_options() {
  return with_server({{"Output", {option("output", 'o')}}, version_options().front()});
}

const std::vector<Command>& client_actions() {
  static const std::vector<Command> list = {
      {"generate",
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
       run_remote_jobs}};
  return list;
}

int run_client(Invocation& run) {
  check(!run.positional.empty(), "missing action: use generate, edit, inpaint, watch, cancel or jobs");
  std::vector<std::string> names;
  for (const Command& action : client_actions()) names.push_back(action.name);
  const std::string near = nearest_word(run.positional[0], names);
  throw Error(ErrorCode::InvalidArgument, fmt::format("unknown action \"{}\"", printable(run.positional[0])),
              near.empty() ? Hint("use generate, edit, inpaint, watch, cancel or jobs") : Hint("did you mean " + near + "?"));
}

}  // namespace flux2
