#include <fmt/format.h>

#include "app/picture_maker.h"
#include "bench/language_bench.h"
#include "cli/bench/bench.h"

namespace flux2 {

int run_bench_language(Invocation& run) {
  LanguageBenchOptions options;
  options.variant = run.settings.text("variant", options.variant);
  options.prompt = static_cast<int>(run.settings.integer("prompt-tokens", 1, 4096).value_or(options.prompt));
  options.tokens = static_cast<int>(run.settings.integer("tokens", 2, 4096).value_or(options.tokens));
  const LanguageBenchResult r = bench_language(engine_options(run.spec(), run), options);
  if (run.console.json()) {
    run.console.result(Json{
        {"model", r.model},
        {"prompt_ms", rounded(1e3 * r.prompt_seconds, 1e-3)},
        {"token_ms", rounded(1e3 * r.median, 1e-3)},
        {"fastest_token_ms", rounded(1e3 * r.fastest, 1e-3)},
        {"tokens_per_second", rounded(1 / r.median, 1e-3)},
        {"weight_bytes", r.weight_bytes},
        {"peak_bytes",
         r.peak_bytes}}.dump());
    return 0;
  }
  run.console.result(
      fmt::format("{}: {:.1f} tokens/s ({:.2f} ms a token, fastest {:.2f}), {:.2f} GB of weights at {:.1f} GB/s; a prompt "
                  "of {} tokens takes {:.0f} ms",
                  r.model, 1 / r.median, 1e3 * r.median, 1e3 * r.fastest, 1e-9 * static_cast<double>(r.weight_bytes),
                  1e-9 * r.bandwidth(), options.prompt, 1e3 * r.prompt_seconds));
  return 0;
}

}  // namespace flux2
