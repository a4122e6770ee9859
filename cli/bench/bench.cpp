#include "cli/bench/bench.h"

#include <cmath>

namespace flux2 {

double rounded(double value, double unit) { return std::round(value / unit) * unit; }

int run_bench(Invocation& run) {
  const std::string what = run.positional.size() == 1 ? run.positional[0] : "";
  if (what == "model") return run_bench_model(run);
  if (what == "gemm") return run_bench_gemm(run);
  if (what == "quant") return run_bench_quant(run);
  if (what == "train") return run_bench_train(run);
  if (what == "upscale") return run_bench_upscale(run);
  if (what == "language") return run_bench_language(run);
  throw Error(ErrorCode::InvalidArgument, "bench is used as: bench model|gemm|quant|train|upscale|language [options]",
              "flux2 bench --help shows examples");
}

}  // namespace flux2
