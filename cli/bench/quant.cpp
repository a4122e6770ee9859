#include <fmt/format.h>

#include "app/picture_maker.h"
#include "bench/quant_bench.h"
#include "cli/bench/bench.h"

namespace flux2 {

int run_bench_quant(Invocation& run) {
  QuantBenchOptions options;
  options.variant = run.settings.text("variant", options.variant);
  options.shape.width = static_cast<int>(run.settings.integer("width", 64, 4096).value_or(options.shape.width));
  options.shape.height = static_cast<int>(run.settings.integer("height", 64, 4096).value_or(options.shape.height));
  if (run.settings.has("quant")) options.quants = {quant_named(run.settings.choice("quant", quant_names(), "none"))};
  EngineOptions engine = engine_options(run.spec(), run);
  const std::vector<QuantBenchRow> rows = bench_quants(engine, options);

  if (run.console.json()) {
    Json results = Json::array();
    for (const QuantBenchRow& row : rows)
      results.push_back({{"kernel", std::string(name_of(row.quant))},
                         {"attention", std::string(name_of(row.attention))},
                         {"error", row.error},
                         {"attention_error", row.attention_error},
                         {"weights_error", row.weights_error},
                         {"ms", rounded(1e3 * row.seconds, 1e-3)},
                         {"weight_bytes", row.weight_bytes}});
    run.console.result(
        Json{{"variant", options.variant}, {"width", options.shape.width}, {"height", options.shape.height}, {"results", results}}
            .dump());
    return 0;
  }
  run.console.result(fmt::format("{}, one step at {}x{}: relative error of the velocity against f32", options.variant,
                                 options.shape.width, options.shape.height));
  run.console.result(fmt::format("{:<8} {:<9} {:>10} {:>14} {:>16} {:>10} {:>12}", "quant", "attention", "error", "weights alone",
                                 "attention alone", "step s", "weights GiB"));
  for (const QuantBenchRow& row : rows)
    run.console.result(fmt::format("{:<8} {:<9} {:>10.2g} {:>14.2g} {:>16.2g} {:>10.3f} {:>12.2f}", name_of(row.quant),
                                   name_of(row.attention), row.error, row.weights_error, row.attention_error, row.seconds,
                                   static_cast<double>(row.weight_bytes) / (1 << 30)));
  return 0;
}

}  // namespace flux2
