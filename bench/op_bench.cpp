// Every op case, on every device of this machine: op_bench --benchmark_filter='linear.*cpu fast'
#include <benchmark/benchmark.h>

#include "tests/support/devices.h"
#include "tests/support/op_cases.h"

namespace {

using namespace flux2;

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.bytes();
  return bytes;
}

void run(benchmark::State& state, const OpCase& c, Device& device, DType dtype) {
  const auto stream = device.open_stream();
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) inputs.push_back(random_tensor(*stream, dtype, c.inputs[i], 100 + i));
  Tensor y = c.run(inputs);
  stream->wait();
  for (auto _ : state) {
    y = c.run(inputs);
    stream->wait();
  }
  if (c.flop > 0)
    state.counters["FLOP/s"] =
        benchmark::Counter(c.flop, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::OneK::kIs1000);
  state.SetBytesProcessed(state.iterations() * (bytes_of(inputs) + y.bytes()));
}

}  // namespace

int main(int argc, char** argv) {
  const auto cases = op_cases();
  auto devices = other_devices();
  devices.push_back({"cpu scalar", scalar_device()});
  for (const OpCase& c : cases)
    for (const NamedDevice& d : devices)
      for (DType dtype : {DType::F32, DType::BF16}) {
        if (dtype == DType::BF16 && d.device->is_host()) continue;  // activations of a CPU are f32
        benchmark::RegisterBenchmark((c.name + " " + name_of(dtype) + " " + d.name).c_str(), [&c, &d,
                                                                                              dtype](benchmark::State& s) {
          run(s, c, *d.device, dtype);
        })->UseRealTime();
      }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
