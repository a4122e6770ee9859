#include "cli/followed_run.h"

#include <fmt/format.h>

#include "base/text.h"
#include "cli/training_display.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

bool has_ended(const Json& run) { return run["state"] == "completed" || run["state"] == "failed" || run["state"] == "stopped"; }

// Shows the events of a run's job.
class RunEvents {
 public:
  explicit RunEvents(Console& console) : console_(console), training_(console) {}

  void know(const Json& run) {
    const int64_t steps = run.value("steps", int64_t{0});
    if (steps > 0 && steps != steps_) training_.at({{"event", "start"}, {"steps", steps}});
    steps_ = steps > 0 ? steps : steps_;
    const std::string state = run["state"].get<std::string>();
    if (state == state_) return;
    state_ = state;
    if (console_.progress() == ProgressMode::Json) console_.event({{"event", "run"}, {"state", state}});
    else if (state != "running") tell(state == "paused" ? "paused" : state + " …");
  }

  bool take(const std::string& name, const Json& data) {
    if (name == "train.state") know(data.at("run"));
    if (name == "train.metrics")
      for (Json point : data.at("points")) {
        point["event"] = "step";
        training_.at(point);
      }
    if (name == "train.checkpoint") saved(data, "checkpoint");
    if (name == "train.sample") saved(data, "sample image");
    return name != "job.completed" && name != "job.failed" && name != "job.cancelled";
  }

  void tell(const std::string& text) {
    if (console_.progress() == ProgressMode::Bar) console_.status(text);
    else if (console_.progress() == ProgressMode::Plain) console_.note(text);
  }

 private:
  void saved(const Json& data, const char* what) {
    if (console_.progress() == ProgressMode::Json) {
      console_.event({{"event", what}, {"step", data["step"]}});
      return;
    }
    console_.note(fmt::format("the server saved a {} at step {}", what, data["step"].get<int64_t>()));
  }

  Console& console_;
  TrainingDisplay training_;
  int64_t steps_ = 0;
  std::string state_;
};

}  // namespace

std::string run_path(const Json& run) { return "/api/v1/training/" + run["id"].get<std::string>(); }

Json find_run(const RemoteServer& server, const std::string& id_or_name) {
  if (id_or_name.starts_with("run_") &&
      id_or_name.find_first_not_of("_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZrun") == id_or_name.npos)
    return server.ask("GET", "/api/v1/training/" + id_or_name);
  for (std::string next = "/api/v1/training?limit=200"; !next.empty();) {
    const Json page = server.ask("GET", next);
    for (const Json& run : page["items"])
      if (run["name"] == id_or_name) return run;
    next = page["next"].is_string() ? "/api/v1/training?limit=200&cursor=" + page["next"].get<std::string>() : "";
  }
  throw Error(ErrorCode::NotFound, fmt::format("training run \"{}\" not found", printable(id_or_name)),
              "`flux2 client runs` lists the runs");
}

FollowedRun follow_run(Invocation& run, const RemoteServer& server, const Json& started) {
  RunEvents events(run.console);
  FollowedRun followed{.run = started};
  ServerPatience patience;
  try {
    for (;;) {
      try {
        followed.run = server.ask("GET", run_path(started));
        patience.answered();
        events.know(followed.run);
        if (has_ended(followed.run)) break;
        if (followed.run["job_id"].is_string()) {
          const std::string job = "/api/v1/jobs/" + followed.run["job_id"].get<std::string>();
          server.follow(job + "/events", [&](const std::string& name, const Json& data) { return events.take(name, data); });
          followed.run = server.ask("GET", run_path(started));
          // A run that makes way for images is paused too, but its job goes on.
          if (has_ended(followed.run) || (followed.run["state"] == "paused" && is_final_job(server.ask("GET", job)))) break;
        }
      } catch (const Error& e) {
        if (!patience.lasts(e)) throw;
        if (patience.is_new()) events.tell("the server does not answer; trying again …");
      }
      patience.wait();
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::Cancelled || interrupt_signal() == 0) throw;
    followed.signal = interrupt_signal();
  }
  run.console.clear_status();
  return followed;
}

}  // namespace flux2
