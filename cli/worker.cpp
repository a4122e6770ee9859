#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "app/request_limits.h"
#include "cli/serve.h"
#include "cli/user_input.h"
#include "server/worker_process.h"

namespace flux2 {

int run_worker(Invocation& run) {
  check(run.positional.empty(), "worker takes no arguments, only options");
  const Settings& s = run.settings;
  WorkerProcessOptions options;
  options.storage = storage_options(run);
  options.idle_unload = std::chrono::seconds(s.integer("idle-unload", 0, 10'000'000).value_or(0));
  options.max_batch = static_cast<int>(s.integer("max-batch", 1, 64).value_or(0));
  options.batch_wait = std::chrono::milliseconds(s.integer("batch-wait-ms", 0, 10'000).value_or(5));
  options.max_models = static_cast<int>(s.integer("max-models", 1, 100).value_or(4));
  options.preload = s.flag("preload");
  if (const Setting* roots = s.find("model-roots"))
    for (const std::string& folder : roots->values) options.model_roots.emplace_back(folder);
  options.preempt_wait = std::chrono::milliseconds(std::llround(1000 * s.number("preempt-wait", 0, 1e6).value_or(30)));

  AppContext context = run;
  context.limits = limits_of(run.environment, run.user, Limits::for_server());
  std::mutex mutex;  // several threads report here
  context.log = Log([&](LogLevel level, const std::string& text) {
    if (level == LogLevel::PrivateWarning) return;
    const std::lock_guard lock(mutex);
    if (level == LogLevel::Warning) run.console.note("warning: " + text);
    else if (run.console.verbosity() >= (level == LogLevel::Debug ? 2 : 1)) run.console.note(text);
  });
  constexpr int kSecondsToEnd = 10;
  allow_time_to_end(kSecondsToEnd);
  WorkerProcess worker(std::move(context), job_defaults(run), std::move(options));
  worker.start();
  {
    const std::lock_guard lock(mutex);
    run.console.note("waiting for jobs; Ctrl-C stops it");
  }
  while (interrupt_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  worker.stop();
  return 128 + interrupt_signal();
}

}  // namespace flux2
