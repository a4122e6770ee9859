#include <fmt/format.h>

#include <sstream>

#include "app/picture_maker.h"
#include "bench/model_bench.h"
#include "cli/bench/bench.h"

namespace flux2 {

namespace {

ModelBenchOptions bench_options_of(const Settings& settings, bool on_host) {
  ModelBenchOptions options;
  // A CPU needs a minute for what a GPU does in the blink of an eye.
  if (on_host) options.repeat = 3, options.picture = false;
  options.variant = settings.text("variant", options.variant);
  options.width = static_cast<int>(settings.integer("width", 64, 4096).value_or(options.width));
  options.height = static_cast<int>(settings.integer("height", 64, 4096).value_or(options.height));
  options.batch = static_cast<int>(settings.integer("batch", 1, 64).value_or(options.batch));
  options.references = static_cast<int>(settings.integer("refs", 0, 10).value_or(options.references));
  options.repeat = static_cast<int>(settings.integer("repeat", 1, 10000).value_or(options.repeat));
  options.per_op = settings.flag("per-op");
  if (settings.has("only")) {
    options.text = options.step = options.decode = options.encode = options.picture = false;
    std::istringstream names(settings.text("only"));
    for (std::string name; std::getline(names, name, ',');) {
      bool* const part = name == "text"      ? &options.text
                         : name == "step"    ? &options.step
                         : name == "decode"  ? &options.decode
                         : name == "encode"  ? &options.encode
                         : name == "picture" ? &options.picture
                                             : nullptr;
      check(part, "--only: \"{}\" is not one of text, step, decode, encode, picture", name);
      *part = true;
    }
  }
  return options;
}

Json as_json(const ModelBench& bench, const ModelBenchOptions& options, const Engine& engine) {
  Json rows = Json::array();
  for (const ModelBenchRow& row : bench.rows) {
    rows.push_back({{"kernel", row.kernel},
                    {"ms", rounded(1e3 * row.median, 1e-3)},
                    {"fastest_ms", rounded(1e3 * row.fastest, 1e-3)},
                    {"tflop", rounded(1e-12 * row.flop, 1e-6)},
                    {"tflops", rounded(1e-12 * row.rate(), 1e-3)},
                    {"percent_of_ceiling", rounded(100 * row.rate() / bench.ceiling, 0.1)}});
    for (const OpTime& op : row.ops)
      rows.back()["ops"].push_back(
          {{"op", op.op}, {"calls", op.calls}, {"ms", rounded(1e3 * op.seconds, 1e-4)}, {"flop", op.flop}, {"bytes", op.bytes}});
  }
  return {{"device", engine.device().description()},
          {"variant", options.variant},
          {"width", options.width},
          {"height", options.height},
          {"batch", options.batch},
          {"refs", options.references},
          {"profile", engine.profile() == Profile::Exact ? "exact" : "fast"},
          {"quant", std::string(name_of(engine.quant()))},
          {"attention", std::string(name_of(engine.attention()))},
          {"ceiling_tflops", rounded(1e-12 * bench.ceiling, 1e-3)},
          {"results", rows},
          {"memory", {{"peak_resident", bench.memory.peak_resident}, {"peak_device", bench.memory.peak_device}}}};
}

void print(Console& console, const ModelBench& bench, const ModelBenchOptions& options, const Engine& engine) {
  console.result(fmt::format("{}, quant {}, attention {}, {}x{}, batch {}, {} {}, on {}", options.variant,
                             name_of(engine.quant()), name_of(engine.attention()), options.width, options.height, options.batch,
                             options.references, options.references == 1 ? "reference" : "references",
                             engine.device().description()));
  console.result(
      fmt::format("{:<32} {:>10} {:>10} {:>9} {:>9} {:>8}", "", "median ms", "fastest", "TFLOP", "TFLOP/s", "ceiling"));
  for (const ModelBenchRow& row : bench.rows)
    console.result(fmt::format("{:<32} {:>10.3f} {:>10.3f} {:>9.3f} {:>9.2f} {:>6.1f} %", row.kernel, 1e3 * row.median,
                               1e3 * row.fastest, 1e-12 * row.flop, 1e-12 * row.rate(), 100 * row.rate() / bench.ceiling));
  const int64_t peak = engine.device().is_host() ? bench.memory.peak_resident : bench.memory.peak_device;
  console.result(fmt::format("ceiling: a large matrix product, {:.1f} TFLOP/s; peak memory {:.2f} GiB", 1e-12 * bench.ceiling,
                             static_cast<double>(peak) / (1 << 30)));
  for (const ModelBenchRow& row : bench.rows) {
    if (row.ops.empty()) continue;
    console.result(fmt::format("{:<32} {:>6} {:>10} {:>9} {:>9}", "ops: " + row.kernel, "calls", "ms", "TFLOP/s", "GB/s"));
    for (const OpTime& op : row.ops)
      console.result(fmt::format("{:<32} {:>6} {:>10.3f} {:>9.1f} {:>9.0f}", op.op, op.calls, 1e3 * op.seconds,
                                 1e-12 * op.flop / op.seconds, 1e-9 * op.bytes / op.seconds));
  }
}

}  // namespace

int run_bench_model(Invocation& run) {
  const Engine engine(engine_options(run.spec(), run));
  const ModelBenchOptions options = bench_options_of(run.settings, engine.device().is_host());
  const ModelBench bench = bench_model(engine, options);
  if (run.console.json()) run.console.result(as_json(bench, options, engine).dump());
  else print(run.console, bench, options, engine);
  return 0;
}

}  // namespace flux2
