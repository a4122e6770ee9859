#include "cli/training_display.h"

#include <fmt/format.h>

#include <cmath>

namespace flux2 {

void TrainingDisplay::at(const Json& event) {
  if (console_.progress() == ProgressMode::Json) {
    console_.event(event);
    return;
  }
  const std::string kind = event.value("event", "");
  if (kind == "start") steps_ = event.value("steps", int64_t{0});
  if (kind == "step") step(event);
  if (kind == "validation")
    console_.note(fmt::format("step {}: validation loss {:.4f}", event.value("step", int64_t{0}), event.value("loss", 0.0)));
  if (kind == "checkpoint" || kind == "sample") console_.note("wrote " + event.value("file", ""));
  if (kind == "state") console_.note("saved state " + event.value("folder", event.value("file", "")));
  if (kind == "end") console_.clear_status();
}

std::string TrainingDisplay::duration(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

void TrainingDisplay::step(const Json& event) {
  const auto number = [&](const char* key) {
    return event.contains(key) && event[key].is_number() ? event[key].get<double>() : 0.0;
  };
  const auto at = static_cast<int64_t>(number("step"));
  double rate = 0;
  if (event.contains("lr") && event["lr"].is_object() && !event["lr"].empty()) rate = event["lr"].begin().value().get<double>();
  const double speed = number("it_per_s"), memory = number("device_gib") > 0 ? number("device_gib") : number("host_gib");
  std::string line = fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}", at, steps_, number("loss_avg"), rate);
  if (speed > 0) {  // not known after the first step, which brings memory into place
    line += speed >= 1 ? fmt::format("  {:.2f} steps/s", speed) : fmt::format("  {:.2f} s/step", 1 / speed);
    line += "  ETA " + duration(number("eta_s"));
  }
  if (memory > 0) line += fmt::format("  {:.1f} GiB", memory);
  if (console_.progress() == ProgressMode::Bar) {
    console_.status(line);
  } else if (console_.progress() == ProgressMode::Plain) {
    // Off a terminal: at most a line every ten seconds, and always the first and the last step.
    const auto now = std::chrono::steady_clock::now();
    if (at != 1 && at != steps_ && now - told_ < std::chrono::seconds(10)) return;
    told_ = now;
    console_.note(line);
  }
}

}  // namespace flux2
