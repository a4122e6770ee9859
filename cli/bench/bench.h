#pragma once

#include "cli/command.h"

namespace flux2 {

// The parts of `flux2 bench`.
int run_bench_model(Invocation& run);
int run_bench_gemm(Invocation& run);
int run_bench_quant(Invocation& run);
int run_bench_train(Invocation& run);
int run_bench_upscale(Invocation& run);
int run_bench_language(Invocation& run);

// A number rounded to a readable length.
double rounded(double value, double unit);

}  // namespace flux2
