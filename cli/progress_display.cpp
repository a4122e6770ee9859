#include "cli/progress_display.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/user_input.h"

namespace flux2 {

namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainPause = std::chrono::seconds(5);  // between steps in a log
constexpr int kBarCells = 24;

double time_left(int step, int steps, double elapsed) { return step > 0 ? elapsed / step * (steps - step) : 0.0; }

}  // namespace

std::string progress_line(Phase phase, int step, int steps, double elapsed) {
  if (phase != Phase::Denoise) return steps > 1 ? fmt::format("{} {}/{}", name_of(phase), step, steps) : name_of(phase);
  const int cells = std::min(kBarCells, steps), full = steps > 0 ? cells * step / steps : 0;
  std::string bar;
  for (int i = 0; i < cells; ++i) bar += i < full ? "▇" : "▁";
  std::string line = fmt::format("{} {}/{}  {}", name_of(phase), step, steps, bar);
  if (step > 0) line += fmt::format(" {:.2f} s/step  ETA {:.1f} s", elapsed / step, time_left(step, steps, elapsed));
  return line;
}

Progress ProgressDisplay::progress(std::optional<double> deadline) {
  Progress progress;
  progress.report = [this](Phase phase, int step, int steps) { at(phase, step, steps); };
  progress.cancelled = [] { return interrupt_signal() != 0; };
  if (deadline)
    progress.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*deadline));
  return progress;
}

void ProgressDisplay::at(Phase phase, int step, int steps, Clock::time_point now) {
  // A smaller step means that the same phase begins again, for another set of images for example.
  const bool begins = step == 0 || step < step_ || phase != phase_ || phase_started_ == Clock::time_point{};
  if (begins) phase_started_ = now;
  // What passed since the last report belongs to the phase that was running then, unless this one just begins.
  if (!begins) spent_[static_cast<size_t>(phase)] += std::chrono::duration<double>(now - reported_).count();
  reported_ = now;
  phase_ = phase, step_ = step, steps_ = steps;
  const double elapsed = std::chrono::duration<double>(now - phase_started_).count();
  switch (console_.progress()) {
    case ProgressMode::Off: return;
    case ProgressMode::Json:
      console_.event({{"event", "phase"},
                      {"name", name_of(phase)},
                      {"step", step},
                      {"steps", steps},
                      {"elapsed_ms", std::llround(elapsed * 1000)},
                      {"eta_ms", std::llround(time_left(step, steps, elapsed) * 1000)}});
      return;
    case ProgressMode::Plain:
      if (step == 0) console_.note(fmt::format("{} …", name_of(phase)));
      else if (step == steps) console_.note(fmt::format("{}: {:.2f} s", name_of(phase), elapsed));
      if (begins || step == steps) drawn_ = now;
      if (now - drawn_ < kPlainPause) return;
      drawn_ = now;
      console_.note(fmt::format("{} {}/{}, {:.1f} s a step, {:.0f} s left", name_of(phase), step, steps, elapsed / step,
                                time_left(step, steps, elapsed)));
      return;
    case ProgressMode::Bar:
      if (!begins && step != steps && now - drawn_ < kRedraw) return;
      drawn_ = now;
      draw_bar(elapsed);
  }
}

void ProgressDisplay::draw_bar(double elapsed) { console_.status(progress_line(phase_, step_, steps_, elapsed)); }

void ProgressDisplay::begin() { spent_ = {}; }

void ProgressDisplay::finish() { console_.clear_status(); }

}  // namespace flux2
