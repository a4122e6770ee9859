#include <fmt/format.h>

#include "app/picture_maker.h"
#include "bench/upscale_bench.h"
#include "cli/bench/bench.h"

namespace flux2 {

int run_bench_upscale(Invocation& run) {
  UpscaleBenchOptions options;
  const auto scale = run.settings.number("scale", 1, 4).value_or(4);
  check(scale == 1 || scale == 2 || scale == 4, "--scale is 1, 2 or 4, not {}", scale);
  options.network.scale = static_cast<int>(scale);
  options.width = static_cast<int>(run.settings.integer("width", 16, 4096).value_or(options.width));
  options.height = static_cast<int>(run.settings.integer("height", 16, 4096).value_or(options.height));
  options.repeats = static_cast<int>(run.settings.integer("repeat", 1, 1000).value_or(options.repeats));
  const UpscaleBenchResult r = bench_upscale(engine_options(run.spec(), run), options);
  if (run.console.json()) {
    run.console.result(Json{
        {"network", options.network.name()},
        {"width", options.width},
        {"height", options.height},
        {"ms", rounded(1e3 * r.seconds, 1e-3)},
        {"fastest_ms", rounded(1e3 * r.fastest, 1e-3)},
        {"slowest_ms", rounded(1e3 * r.slowest, 1e-3)},
        {"gflop", rounded(1e-9 * r.flop, 1e-3)},
        {"peak_bytes",
         r.peak_bytes}}.dump());
    return 0;
  }
  run.console.result(fmt::format("{}, {}x{}: {:.3f} s ({:.3f} to {:.3f}), {:.0f} GFLOP/s, {:.2f} GiB of memory",
                                 options.network.name(), options.width, options.height, r.seconds, r.fastest, r.slowest,
                                 1e-9 * r.flop / r.seconds, static_cast<double>(r.peak_bytes) / (1 << 30)));
  return 0;
}

}  // namespace flux2
