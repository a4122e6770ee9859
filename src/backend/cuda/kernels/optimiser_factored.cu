#include <vector>

#include "backend/cuda/kernels/optimiser.cuh"

// Adafactor and CAME. The passes are those of the CPU's optimiser_factored.cpp; every pass is one launch over all tensors.
namespace flux2::cuda {

namespace {

constexpr int kThreads = kOptimiserThreads;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kBandRows = 64;

// What the passes leave for each other: of one tensor, in memory of the device.
struct FactoredWork {
  float* row_factors;     // [matrices, rows]
  float* column_factors;  // [matrices, columns]
  float* column_sums;     // [matrices, bands, columns]
  double* squares;        // [chunks, 2]: of updates and of parameters
  float* factors;         // of clipping; the learning rate
};

__host__ __device__ inline int64_t bands_of(const OptimiserTensor& t) { return (t.rows + kBandRows - 1) / kBandRows; }
__host__ __device__ inline int64_t matrices_of(const OptimiserTensor& t) { return t.count / (t.rows * t.columns); }
__host__ __device__ inline int64_t tiles_of(const OptimiserTensor& t) { return (t.columns + 31) / 32; }
int64_t chunks_of(const OptimiserTensor& t) { return ceil_div(t.count, kOptimiserChunk); }

__device__ inline float factor_at(const OptimiserTensor& t, const FactoredWork& w, int64_t i) {
  const int64_t row = i / t.columns, column = i - row * t.columns;
  return w.row_factors[row] * w.column_factors[row / t.rows * t.columns + column];
}

// The update of one element before clipping.
__device__ inline float update_at(const OptimiserTensor& t, const FactoredWork& w, int64_t i, float g) {
  if (t.factored) return factor_at(t, w, i) * g;
  return inverse_root(static_cast<const float*>(t.state[0])[i]) * g;
}

// What is averaged over rows and columns: squares of gradients, or CAME's residuals.
template <bool kResiduals>
__device__ inline float averaged_value(const OptimiserTensor& t, const OptimiserStep& step, const FactoredWork& w, int64_t i) {
  const float g = load_gradient(t, step, i);
  if constexpr (!kResiduals) return g * g + step.numbers.eps;
  return came_residual(step.numbers, static_cast<const float*>(t.state[2])[i], update_at(t, w, i, g) * w.factors[0]);
}

template <bool kResiduals>
constexpr int kFirstState = kResiduals ? 3 : 0;
template <bool kResiduals>
__device__ inline float averaged_with(const RuleNumbers& k, float old, float fresh) {
  return kResiduals ? averaged(old, k.beta3, k.rest3, fresh) : averaged(old, k.beta2, k.rest2, fresh);
}

// A warp per row.
template <bool kResiduals>
__global__ void __launch_bounds__(kThreads) average_rows(const __grid_constant__ OptimiserTable table,
                                                         const __grid_constant__ OptimiserStep step, const FactoredWork* work) {
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const FactoredWork w = work[part.tensor];
  const int64_t row = part.index * kWarps + threadIdx.x / 32;
  if (row >= matrices_of(t) * t.rows) return;
  double total = 0;
  for (int64_t c = threadIdx.x % 32; c < t.columns; c += 32)
    total += static_cast<double>(averaged_value<kResiduals>(t, step, w, row * t.columns + c));
  total = warp_sum(total);
  if (threadIdx.x % 32 != 0) return;
  float* rows = static_cast<float*>(t.state[kFirstState<kResiduals>]);
  rows[row] = averaged_with<kResiduals>(step.numbers, rows[row], static_cast<float>(total / static_cast<double>(t.columns)));
}

// A block per band of rows and tile of 32 columns.
template <bool kResiduals>
__global__ void __launch_bounds__(kThreads) sum_columns(const __grid_constant__ OptimiserTable table,
                                                        const __grid_constant__ OptimiserStep step, const FactoredWork* work) {
  __shared__ float partial[kWarps][32];
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const FactoredWork w = work[part.tensor];
  const int64_t tile = part.index % tiles_of(t), band = part.index / tiles_of(t);  // bands count over all matrices
  const int64_t matrix = band / bands_of(t), first = band % bands_of(t) * kBandRows, end = min(t.rows, first + kBandRows);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = tile * 32 + lane;
  float total = 0;
  if (column < t.columns)
    for (int64_t r = first + warp; r < end; r += kWarps)
      total += averaged_value<kResiduals>(t, step, w, (matrix * t.rows + r) * t.columns + column);
  partial[warp][lane] = total;
  __syncthreads();
  if (warp != 0 || column >= t.columns) return;
  for (int k = 1; k < kWarps; ++k) total += partial[k][lane];
  w.column_sums[band * t.columns + column] = total;
}

template <bool kResiduals>
__global__ void __launch_bounds__(kThreads) finish_columns(const __grid_constant__ OptimiserTable table,
                                                           const __grid_constant__ OptimiserStep step, const FactoredWork* work) {
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const FactoredWork w = work[part.tensor];
  const int64_t at = part.index * kThreads + threadIdx.x;
  if (at >= matrices_of(t) * t.columns) return;
  const int64_t matrix = at / t.columns, column = at % t.columns;
  double total = 0;
  for (int64_t band = matrix * bands_of(t); band < (matrix + 1) * bands_of(t); ++band)
    total += static_cast<double>(w.column_sums[band * t.columns + column]);
  float* columns = static_cast<float*>(t.state[kFirstState<kResiduals> + 1]);
  const float mean =
      averaged_with<kResiduals>(step.numbers, columns[at], static_cast<float>(total / static_cast<double>(t.rows)));
  columns[at] = mean;
  w.column_factors[at] = inverse_root(mean);
}

// A block per matrix.
template <bool kResiduals>
__global__ void __launch_bounds__(kThreads) finish_rows(const __grid_constant__ OptimiserTable table, const FactoredWork* work) {
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const FactoredWork w = work[part.tensor];
  const float* rows = static_cast<const float*>(t.state[kFirstState<kResiduals>]) + part.index * t.rows;
  double total = 0;
  for (int64_t r = threadIdx.x; r < t.rows; r += kThreads) total += static_cast<double>(rows[r]);
  const float mean = static_cast<float>(block_sum<kThreads>(total) / static_cast<double>(t.rows));
  for (int64_t r = threadIdx.x; r < t.rows; r += kThreads) w.row_factors[part.index * t.rows + r] = row_factor(rows[r], mean);
}

// Squares of updates and parameters of one chunk. The second moment of vectors moves here.
__global__ void __launch_bounds__(kThreads)
    measure_updates(const __grid_constant__ OptimiserTable table, const __grid_constant__ OptimiserStep step,
                    const FactoredWork* work) {
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const FactoredWork w = work[part.tensor];
  const int64_t begin = part.index * kOptimiserChunk, end = min(t.count, begin + kOptimiserChunk);
  double updates = 0, parameters = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const float g = load_gradient(t, step, i);
    if (!t.factored) {
      float* v = static_cast<float*>(t.state[0]) + i;
      *v = averaged(*v, step.numbers.beta2, step.numbers.rest2, g * g + step.numbers.eps);
    }
    const double h = update_at(t, w, i, g), p = load_parameter(t, i);
    updates += h * h;
    parameters += p * p;
  }
  updates = block_sum<kThreads>(updates);
  parameters = block_sum<kThreads>(parameters);
  if (threadIdx.x == 0) w.squares[2 * part.index] = updates, w.squares[2 * part.index + 1] = parameters;
}

// A block per tensor.
__global__ void __launch_bounds__(kThreads)
    finish_measures(const __grid_constant__ OptimiserTable table, const __grid_constant__ OptimiserStep step,
                    const FactoredWork* work) {
  const OptimiserTensor t = table.tensors[blockIdx.x];
  const FactoredWork w = work[blockIdx.x];
  const int64_t chunks = (t.count + kOptimiserChunk - 1) / kOptimiserChunk;
  double updates = 0, parameters = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += kThreads) updates += w.squares[2 * i], parameters += w.squares[2 * i + 1];
  updates = block_sum<kThreads>(updates);
  parameters = block_sum<kThreads>(parameters);
  if (threadIdx.x != 0) return;
  w.factors[0] = clip_factor(step.numbers, updates, static_cast<double>(t.count));
  w.factors[1] = adafactor_rate(step.numbers, t, parameters);
}

__global__ void __launch_bounds__(kThreads)
    apply_adafactor(const __grid_constant__ OptimiserTable table, const __grid_constant__ OptimiserStep step,
                    const FactoredWork* work) {
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const FactoredWork w = work[part.tensor];
  const int64_t begin = part.index * kOptimiserChunk, end = min(t.count, begin + kOptimiserChunk);
  const float clip = w.factors[0], rate = w.factors[1];
  float* m = step.numbers.momentum ? static_cast<float*>(t.state[2]) : nullptr;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    OptimiserElement e;
    e.p = load_parameter(t, i);
    e.g = load_gradient(t, step, i);
    if (m) e.a = m[i];
    adafactor_update(step.numbers, t, rate, update_at(t, w, i, e.g) * clip, e);
    if (m) m[i] = e.a;
    store_parameter(t, step, i, e.p);
  }
}

__global__ void __launch_bounds__(kThreads)
    move_came_moments(const __grid_constant__ OptimiserTable table, const __grid_constant__ OptimiserStep step,
                      const FactoredWork* work) {
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const FactoredWork w = work[part.tensor];
  const int64_t begin = part.index * kOptimiserChunk, end = min(t.count, begin + kOptimiserChunk);
  float* m = static_cast<float*>(t.state[2]);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads)
    m[i] = came_moment(step.numbers, m[i], update_at(t, w, i, load_gradient(t, step, i)) * w.factors[0]);
}

__global__ void __launch_bounds__(kThreads) apply_came(const __grid_constant__ OptimiserTable table,
                                                       const __grid_constant__ OptimiserStep step, const FactoredWork* work) {
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const FactoredWork w = work[part.tensor];
  const int64_t begin = part.index * kOptimiserChunk, end = min(t.count, begin + kOptimiserChunk);
  const float* m = static_cast<const float*>(t.state[2]);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const float direction = t.factored ? factor_at(t, w, i) * m[i] : m[i];
    store_parameter(t, step, i, came_update(t, load_parameter(t, i), direction));
  }
}

// Memory for the passes, and the places of each tensor in it.
std::vector<FactoredWork> lay_out(const OptimiseArgs& args, CudaStream& stream, std::shared_ptr<void>& memory) {
  int64_t floats = 0, doubles = 0;
  for (const OptimiserTensor& t : args.tensors) {
    doubles += 2 * chunks_of(t);
    floats += 2;
    if (t.factored) floats += matrices_of(t) * (t.rows + t.columns + bands_of(t) * t.columns);
  }
  memory = stream.allocate(static_cast<size_t>(doubles) * sizeof(double) + static_cast<size_t>(floats) * sizeof(float));
  auto* squares = static_cast<double*>(memory.get());
  auto* next = reinterpret_cast<float*>(squares + doubles);
  const auto take = [&](int64_t count) {
    float* at = next;
    next += count;
    return at;
  };
  std::vector<FactoredWork> work;
  for (const OptimiserTensor& t : args.tensors) {
    FactoredWork w{};
    w.squares = squares;
    squares += 2 * chunks_of(t);
    w.factors = take(2);
    if (t.factored) {
      w.row_factors = take(matrices_of(t) * t.rows);
      w.column_factors = take(matrices_of(t) * t.columns);
      w.column_sums = take(matrices_of(t) * bands_of(t) * t.columns);
    }
    work.push_back(w);
  }
  return work;
}

struct FactoredTables {
  PartTable rows, bands, columns, matrices, chunks;
};

template <class Kernel, class... Rest>
void launch_parts(OptimiserLaunch& launch, const PartTable& parts, Kernel kernel, Rest... rest) {
  if (parts.parts == 0) return;
  kernel<<<blocks_for("optimise", parts.parts, 1), kThreads, 0, launch.stream().handle()>>>(parts.table, rest...);
  launch.stream().enqueued("optimise");
}

template <bool kResiduals>
void average(OptimiserLaunch& launch, const FactoredTables& tables, const FactoredWork* work) {
  launch_parts(launch, tables.rows, average_rows<kResiduals>, launch.step(), work);
  launch_parts(launch, tables.bands, sum_columns<kResiduals>, launch.step(), work);
  launch_parts(launch, tables.columns, finish_columns<kResiduals>, launch.step(), work);
  launch_parts(launch, tables.matrices, finish_rows<kResiduals>, work);
}

}  // namespace

void optimise_factored(OptimiserLaunch& launch, const OptimiseArgs& args) {
  if (args.tensors.empty()) return;
  std::shared_ptr<void> memory;
  const std::vector<FactoredWork> layout = lay_out(args, launch.stream(), memory);
  const FactoredWork* work = launch.uploaded(layout.data(), layout.size());
  const auto matrices = [](const OptimiserTensor& t) { return t.factored ? matrices_of(t) : 0; };
  const FactoredTables tables{launch.table([&](const OptimiserTensor& t) { return ceil_div(matrices(t) * t.rows, kWarps); }),
                              launch.table([&](const OptimiserTensor& t) { return matrices(t) * bands_of(t) * tiles_of(t); }),
                              launch.table([&](const OptimiserTensor& t) { return ceil_div(matrices(t) * t.columns, kThreads); }),
                              launch.table(matrices), launch.table(chunks_of)};

  average<false>(launch, tables, work);
  launch_parts(launch, tables.chunks, measure_updates, launch.step(), work);
  const PartTable tensors{tables.chunks.table, static_cast<int64_t>(args.tensors.size())};
  launch_parts(launch, tensors, finish_measures, launch.step(), work);
  if (args.rule == OptimiserRule::Adafactor) {
    launch_parts(launch, tables.chunks, apply_adafactor, launch.step(), work);
    return;
  }
  launch_parts(launch, tables.chunks, move_came_moments, launch.step(), work);
  average<true>(launch, tables, work);
  launch_parts(launch, tables.chunks, apply_came, launch.step(), work);
}

}  // namespace flux2::cuda
