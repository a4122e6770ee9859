#include <fmt/format.h>

#include "app/picture_maker.h"
#include "bench/train_bench.h"
#include "cli/bench/bench.h"

namespace flux2 {

namespace {

TrainBenchOptions train_options_of(const Settings& settings) {
  TrainBenchOptions options;
  options.variant = settings.text("variant", options.variant);
  options.shape.width = static_cast<int>(settings.integer("width", 64, 4096).value_or(options.shape.width));
  options.shape.height = static_cast<int>(settings.integer("height", 64, 4096).value_or(options.shape.height));
  options.shape.batch = static_cast<int>(settings.integer("batch", 1, 64).value_or(options.shape.batch));
  options.shape.references = static_cast<int>(settings.integer("refs", 0, 10).value_or(options.shape.references));
  options.rank = static_cast<int>(settings.integer("rank", 1, 1024).value_or(options.rank));
  options.repeat = static_cast<int>(settings.integer("repeat", 1, 10000).value_or(options.repeat));
  options.checkpoint = settings.flag("checkpoint");
  options.per_op = settings.flag("per-op");
  return options;
}

Json as_json(const TrainBench& bench, const TrainBenchOptions& options, const Engine& engine) {
  Json ops = Json::array();
  for (const OpTime& op : bench.ops)
    ops.push_back(
        {{"op", op.op}, {"calls", op.calls}, {"ms", rounded(1e3 * op.seconds, 1e-4)}, {"flop", op.flop}, {"bytes", op.bytes}});
  return {{"device", engine.device().description()},
          {"variant", options.variant},
          {"width", options.shape.width},
          {"height", options.shape.height},
          {"batch", options.shape.batch},
          {"refs", options.shape.references},
          {"rank", options.rank},
          {"checkpoint", options.checkpoint},
          {"ms", rounded(1e3 * bench.median, 1e-3)},
          {"fastest_ms", rounded(1e3 * bench.fastest, 1e-3)},
          {"tflop", rounded(1e-12 * bench.flop, 1e-6)},
          {"tflops", rounded(1e-12 * bench.rate(), 1e-3)},
          {"ceiling_tflops", rounded(1e-12 * bench.ceiling, 1e-3)},
          {"adapters", bench.adapters},
          {"parameters", bench.parameters},
          {"loss", bench.loss},
          {"gradient_norm", bench.gradient_norm},
          {"ops", ops},
          {"memory", {{"peak_resident", bench.memory.peak_resident}, {"peak_device", bench.memory.peak_device}}}};
}

void print(Console& console, const TrainBench& bench, const TrainBenchOptions& options, const Engine& engine) {
  console.result(fmt::format("{}, {}x{}, batch {}, rank {} on {} layers ({:.1f} M values){}, on {}", options.variant,
                             options.shape.width, options.shape.height, options.shape.batch, options.rank, bench.adapters,
                             1e-6 * static_cast<double>(bench.parameters), options.checkpoint ? ", checkpointed" : "",
                             engine.device().description()));
  console.result(fmt::format(
      "one step: median {:.2f} ms, fastest {:.2f}; {:.1f} TFLOP at {:.1f} TFLOP/s, {:.1f} % of a large product",
      1e3 * bench.median, 1e3 * bench.fastest, 1e-12 * bench.flop, 1e-12 * bench.rate(), 100 * bench.rate() / bench.ceiling));
  const int64_t peak = engine.device().is_host() ? bench.memory.peak_resident : bench.memory.peak_device;
  console.result(fmt::format("peak memory {:.2f} GB; loss {:.6f}, gradient norm {:.6g}", 1e-9 * static_cast<double>(peak),
                             bench.loss, bench.gradient_norm));
  if (bench.ops.empty()) return;
  console.result(fmt::format("{:<32} {:>6} {:>10} {:>9} {:>9}", "op", "calls", "ms", "TFLOP/s", "GB/s"));
  for (const OpTime& op : bench.ops)
    console.result(fmt::format("{:<32} {:>6} {:>10.3f} {:>9.1f} {:>9.0f}", op.op, op.calls, 1e3 * op.seconds,
                               1e-12 * op.flop / op.seconds, 1e-9 * op.bytes / op.seconds));
}

}  // namespace

int run_bench_train(Invocation& run) {
  const TrainBenchOptions options = train_options_of(run.settings);
  EngineOptions settings = engine_options(run.spec(), run);
  settings.attention = AttentionBits::Sixteen;  // as in training
  const Engine engine(settings);
  const TrainBench bench = bench_train(engine, options);
  if (run.console.json()) run.console.result(as_json(bench, options, engine).dump());
  else print(run.console, bench, options, engine);
  return 0;
}

}  // namespace flux2
