#include <fmt/format.h>

#include <sstream>

#include "bench/gemm_bench.h"
#include "cli/bench/bench.h"

namespace flux2 {

namespace {

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> items;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) items.push_back(item);
  return items;
}

GemmBenchOptions options_of(const Settings& settings) {
  GemmBenchOptions options;
  if (const auto rows = settings.integer("rows", 1, 1 << 20)) options.rows = {*rows};
  if (const auto threads = settings.integer("threads", 1, 4096)) options.threads = {static_cast<int>(*threads)};
  options.seconds = settings.number("seconds", 0.001, 3600).value_or(options.seconds);
  if (settings.has("only")) options.kernels = list_of(settings.text("only"));
  return options;
}

Json as_json(const GemmBench& bench) {
  Json rows = Json::array();
  for (const GemmBenchRow& row : bench.rows) {
    rows.push_back({{"kernel", row.kernel},
                    {"threads", row.threads},
                    {"m", row.m},
                    {"n", row.n},
                    {"k", row.k},
                    {"ms", rounded(1e3 * row.median, 1e-3)},
                    {"fastest_ms", rounded(1e3 * row.fastest, 1e-3)},
                    {"gflops", rounded(1e-9 * row.rate(), 0.1)}});
    if (row.ceiling > 0) {
      rows.back()["instruction"] = row.instruction;
      rows.back()["ceiling_gflops"] = rounded(1e-9 * row.ceiling, 0.1);
      rows.back()["percent_of_ceiling"] = rounded(row.percent_of_ceiling(), 0.1);
    }
  }
  return {{"device", bench.device}, {"yardstick", bench.yardstick}, {"results", rows}};
}

std::string line_of(const GemmBenchRow& row) {
  const std::string shape = fmt::format("{}x{}x{}", row.m, row.n, row.k);
  std::string line =
      fmt::format("{:<14} {:>7} {:>20} {:>10.2f} {:>9.1f}", row.kernel, row.threads, shape, 1e3 * row.median, 1e-9 * row.rate());
  if (row.ceiling > 0)
    line += fmt::format(" {:>7.1f} %  {} {:.0f}", row.percent_of_ceiling(), row.instruction, 1e-9 * row.ceiling);
  return line;
}

}  // namespace

int run_bench_gemm(Invocation& run) {
  GemmBenchOptions options = options_of(run.settings);
  if (run.console.json()) {
    run.console.result(as_json(bench_gemm(options)).dump());
    return 0;
  }
  run.console.result(fmt::format("{:<14} {:>7} {:>20} {:>10} {:>9} {:>9}  {}", "kernel", "threads", "rows x out x in",
                                 "median ms", "GFLOP/s", "ceiling", "of"));
  options.measured = [&](const GemmBenchRow& row) { run.console.result(line_of(row)); };
  const GemmBench bench = bench_gemm(options);
  run.console.result(bench.device + (bench.yardstick.empty() ? "; no OpenBLAS to compare with" : "; " + bench.yardstick));
  return 0;
}

}  // namespace flux2
