#include "backend/cuda/cublas.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/op_timer.h"
#include "base/error.h"

// Headers before CUDA 12.9 do not know scales for rows. Products are then scaled afterwards (eight_bit_product.cpp).
#define FLUX2_CUBLAS_SCALES_ROWS (CUBLAS_VER_MAJOR > 12 || (CUBLAS_VER_MAJOR == 12 && CUBLAS_VER_MINOR >= 9))

namespace flux2 {

namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kCandidates = 12;       // of the library's choices, best guess first
constexpr int kTimings = 7;           // of each; the first warms up
constexpr double kWorthwhile = 0.98;  // a later choice must be this much faster than the library's first
constexpr size_t kMaxPlans = 4096;    // a server that sees every picture size must not grow for ever

void check_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorCode::Device, "{}: {}", what, cublasLtGetStatusString(status));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::BF16: return CUDA_R_16BF;
    case DType::F8_E4M3: return CUDA_R_8F_E4M3;
    case DType::I8: return CUDA_R_8I;
    case DType::I32: return CUDA_R_32I;
    default: return CUDA_R_32F;
  }
}

// The alignment of all matrices of a batch, as the library expects it: the largest power of two up to 256 that divides their
// addresses.
uint32_t alignment_of(const Matrix& m) {
  const auto bits = reinterpret_cast<uintptr_t>(m.data) | static_cast<uintptr_t>(bytes_for(m.dtype, m.batch_stride));
  return static_cast<uint32_t>(std::min<uintptr_t>(bits & (~bits + 1), 256));
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "matrix product");
  return status != cudaStreamCaptureStatusNone;
}

// Device memory for as long as products are timed; null if there is none left, or 0 bytes were asked for.
class Scratch {
 public:
  explicit Scratch(size_t bytes) {
    if (bytes > 0 && cudaMalloc(&memory_, bytes) != cudaSuccess) {
      cudaGetLastError();  // clears the error: the product is then chosen without timing
      memory_ = nullptr;
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { cudaFree(memory_); }
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

class Layout {
 public:
  // A row-major matrix is a column-major one with rows and columns exchanged.
  Layout(const Matrix& m, int64_t batches) {
    check_cublas(cublasLtMatrixLayoutCreate(&handle_, type_of(m.dtype), static_cast<uint64_t>(m.columns),
                                            static_cast<uint64_t>(m.rows), m.row_stride),
                 "describing a matrix");
    if (batches == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batches));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.batch_stride);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(handle_); }
  operator cublasLtMatrixLayout_t() const { return handle_; }

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
    check_cublas(cublasLtMatrixLayoutSetAttribute(handle_, attribute, &value, sizeof(value)), "describing a matrix");
  }

  cublasLtMatrixLayout_t handle_ = nullptr;
};

class Operation {
 public:
  explicit Operation(bool integers) {
    check_cublas(cublasLtMatmulDescCreate(&handle_, integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                          integers ? CUDA_R_32I : CUDA_R_32F),
                 "describing a product");
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() { cublasLtMatmulDescDestroy(handle_); }
  operator cublasLtMatmulDesc_t() const { return handle_; }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    check_cublas(cublasLtMatmulDescSetAttribute(handle_, attribute, &value, sizeof(value)), "describing a product");
  }

 private:
  cublasLtMatmulDesc_t handle_ = nullptr;
};

class Preference {
 public:
  Preference() { check_cublas(cublasLtMatmulPreferenceCreate(&handle_), "choosing a product"); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle_); }
  operator cublasLtMatmulPreference_t() const { return handle_; }

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) const {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(handle_, attribute, &value, sizeof(value)), "choosing a product");
  }

 private:
  cublasLtMatmulPreference_t handle_ = nullptr;
};

}  // namespace

// The library is column-major: it computes yᵀ = bᵀ · aᵀ, so our b is its first operand.
struct Cublas::Plan {
  explicit Plan(const Product& p)
      : operation(p.a.dtype == DType::I8), first(p.b, p.batches), second(p.a, p.batches), result(p.y, p.batches) {
    operation.set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    operation.set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.bias) {
      operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    }
#if FLUX2_CUBLAS_SCALES_ROWS
    if (p.a_scales) {
      operation.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F});
      operation.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F});
      point_at_scales(p);
    }
#endif
    // The tensor cores' own sums keep 14 bits or so: far more than operands of 4 bits are worth.
    if (p.a.dtype == DType::F8_E4M3) operation.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  }

  void point_at_scales(const Product& p) const {
    operation.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(p.b_scales));
    operation.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(p.a_scales));
  }

  Operation operation;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;  // the library's refusal, if it has no such product
};

Cublas::Cublas(cudaStream_t stream, MatmulPlans& plans) : stream_(stream), remembered_(plans) {
  check_cublas(cublasLtCreate(&handle_), "starting cuBLASLt");
  int device = 0, major = 0;
  check_cuda(cudaGetDevice(&device), "starting cuBLASLt");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "starting cuBLASLt");
  scales_rows_ = FLUX2_CUBLAS_SCALES_ROWS && major == 9 && cublasLtGetVersion() >= 120900;
  if (const cudaError_t status = cudaMalloc(&workspace_, kWorkspaceBytes); status != cudaSuccess) {
    cublasLtDestroy(handle_);
    check_cuda(status, "starting cuBLASLt");
  }
}

// Ada and later; the library has had it for longer than we can be built with it.
bool Cublas::multiplies_fp8(int compute_capability) { return compute_capability >= 89; }

Cublas::~Cublas() {
  plans_.clear();
  cudaFree(workspace_);
  cublasLtDestroy(handle_);
}

Cublas::Plan& Cublas::plan_for(const Product& p) {
  const Key key = {p.a.rows,
                   p.a.columns,
                   p.a.row_stride,
                   p.b.rows,
                   p.b.columns,
                   p.b.row_stride,
                   p.y.row_stride,
                   static_cast<int64_t>(p.a.dtype),
                   static_cast<int64_t>(p.y.dtype),
                   p.transpose_a,
                   p.transpose_b,
                   (p.bias != nullptr) + 2 * p.add,
                   alignment_of(p.a),
                   alignment_of(p.b),
                   alignment_of(p.y),
                   p.batches,
                   p.a.batch_stride,
                   p.b.batch_stride,
                   p.y.batch_stride};
  if (const auto found = plans_.find(key); found != plans_.end()) return *found->second;

  auto plan = std::make_unique<Plan>(p);
  const std::string description = fmt::format("{}", fmt::join(key, " "));
  const auto remembered = remembered_.find(description);
  cublasLtMatmulHeuristicResult_t checked{};
  if (remembered &&
      cublasLtMatmulAlgoCheck(handle_, plan->operation, plan->first, plan->second, plan->result, plan->result, &*remembered,
                              &checked) == CUBLAS_STATUS_SUCCESS &&
      checked.workspaceSize <= kWorkspaceBytes) {
    plan->algorithm = *remembered;
  } else {
    const auto chosen = choose(*plan, p, plan->status);
    if (chosen) plan->algorithm = *chosen;
    if (chosen && remembered_.active() && !is_capturing(stream_)) remembered_.remember(description, plan->algorithm);
  }
  if (plans_.size() >= kMaxPlans) plans_.clear();
  return *plans_.emplace(key, std::move(plan)).first->second;
}

std::optional<cublasLtMatmulAlgo_t> Cublas::choose(const Plan& plan, const Product& p, cublasStatus_t& status) const {
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // Partial sums of a split product are added in F32 and in a fixed order.
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.y));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.y));

  // A product that adds to its result is timed with its result elsewhere.
  const bool may_time = remembered_.active() && !is_capturing(stream_);
  const int64_t extent = (p.batches - 1) * p.y.batch_stride + p.y.rows * p.y.row_stride;
  const Scratch elsewhere(may_time && p.add ? static_cast<size_t>(bytes_for(p.y.dtype, extent)) : 0);
  const bool timed = may_time && (!p.add || elsewhere.get());
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> choices{};
  int count = 0;
  status = cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.first, plan.second, plan.result, plan.result, preference,
                                          timed ? kCandidates : 1, choices.data(), &count);
  if (status == CUBLAS_STATUS_SUCCESS && count == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (status != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  cublasLtMatmulAlgo_t best = choices[0].algo;
  if (!timed || count == 1) return best;

  // In turns, so that a GPU that slows down as it warms up is not kinder to the first.
  std::vector<std::vector<double>> times(static_cast<size_t>(count));
  for (int round = 0; round < kTimings; ++round)
    for (size_t i = 0; i < times.size(); ++i) {
      const double t = time(plan, p, choices[i].algo, p.add ? elsewhere.get() : p.y.data);
      if (round > 0) times[i].push_back(t);
    }
  const auto median = [](std::vector<double>& t) {
    std::nth_element(t.begin(), t.begin() + static_cast<ptrdiff_t>(t.size() / 2), t.end());
    return t[t.size() / 2];
  };
  double best_time = kWorthwhile * median(times[0]);
  for (size_t i = 1; i < times.size(); ++i)
    if (const double t = median(times[i]); t < best_time) {
      best_time = t;
      best = choices[i].algo;
    }
  return best;
}

double Cublas::time(const Plan& plan, const Product& p, const cublasLtMatmulAlgo_t& algorithm, void* result) const {
  // In a model the weights come from memory; here they would lie in the cache from the time before, which favours
  // other algorithms.
  check_cuda(cudaMemsetAsync(workspace_, 0, kWorkspaceBytes, stream_), "timing a product");
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const double seconds = seconds_on(stream_, [&] { status = enqueue(plan, p, algorithm, result); });
  return status == CUBLAS_STATUS_SUCCESS ? seconds : std::numeric_limits<double>::infinity();
}

cublasStatus_t Cublas::enqueue(const Plan& plan, const Product& p, const cublasLtMatmulAlgo_t& algorithm, void* result) const {
  const float kept = p.add ? 1.0f : 0.0f;
  const int32_t whole_factor = 1, whole_kept = 0;
  const bool integers = p.a.dtype == DType::I8;
  const void* const factor = integers ? static_cast<const void*>(&whole_factor) : &p.factor;
  const void* const keep = integers ? static_cast<const void*>(&whole_kept) : &kept;
  return cublasLtMatmul(handle_, plan.operation, factor, p.b.data, plan.first, p.a.data, plan.second, keep, p.y.data, plan.result,
                        result, plan.result, &algorithm, workspace_, kWorkspaceBytes, stream_);
}

bool Cublas::multiply_if_possible(const Product& p) {
  Plan& plan = plan_for(p);
  if (plan.status != CUBLAS_STATUS_SUCCESS) return false;
  if (p.bias) plan.operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  if (p.a_scales) plan.point_at_scales(p);
  const cublasStatus_t status = enqueue(plan, p, plan.algorithm, p.y.data);
  // Choosing does not look at what is added, so this may be the first time that the library refuses.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) plan.status = status;
  else check_cublas(status, "matrix product");
  return plan.status == CUBLAS_STATUS_SUCCESS;
}

void Cublas::multiply(const Product& p) {
  if (!multiply_if_possible(p))
    fail(ErrorCode::Device, "cuBLASLt has no product for {}x{} by {}x{} ({}): {}", p.a.rows, p.a.columns, p.b.rows, p.b.columns,
         name_of(p.a.dtype), cublasLtGetStatusString(plan_for(p).status));
}

}  // namespace flux2
