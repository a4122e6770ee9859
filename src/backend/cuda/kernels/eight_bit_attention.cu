#include "backend/cuda/kernels/eight_bit_attention.cuh"

#include <cuda_runtime.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

using namespace attention8;

attention8::Strides strides_of(const Tensor& t) { return {t.stride(0), t.stride(1), t.stride(2)}; }

// Rows that are read 16 bytes at a time.
bool is_readable(const Tensor& t) {
  if (t.dtype() != DType::BF16 || t.stride(3) != 1 || !is_aligned(t.raw(), 16)) return false;
  for (int axis = 0; axis < 3; ++axis)
    if (t.dim(axis) > 1 && t.stride(axis) % 8 != 0) return false;
  return true;
}

bool is_writable(const Tensor& t) {
  if (t.dtype() != DType::BF16 || t.stride(3) != 1 || !is_aligned(t.raw(), 4)) return false;
  for (int axis = 0; axis < 3; ++axis)
    if (t.dim(axis) > 1 && t.stride(axis) % 2 != 0) return false;
  return true;
}

int processors() {
  int device = 0, count = 0;
  check_cuda(cudaGetDevice(&device), "attention");
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "attention");
  return count;
}

Plan plan_for(const AttentionArgs& args) {
  return plan_of(static_cast<int>(args.q.dim(0)), static_cast<int>(args.q.dim(1)), static_cast<int>(args.k.dim(1)),
                 static_cast<int>(args.q.dim(2)), static_cast<int>(args.k.dim(2)), processors());
}

}  // namespace

bool has_eight_bit_attention() { return true; }

bool eight_bit_attention_fits(const AttentionArgs& args) {
  constexpr int64_t kLongest = int64_t{1} << 20, kMost = int64_t{1} << 16;  // tokens; heads of all batches
  return args.q.dim(3) == kWidth && !args.causal && !args.key_mask && !args.log_sum && is_readable(args.q) &&
         is_readable(args.k) && is_readable(args.v) && is_writable(args.y) && args.q.dim(1) <= kLongest &&
         args.k.dim(1) <= kLongest && args.q.dim(0) * args.q.dim(2) <= kMost && args.y.device().attends_in_8_bits();
}

void eight_bit_attention(const AttentionArgs& args) {
  const Tensor &q = args.q, &k = args.k, &v = args.v, &y = args.y;
  CudaStream& stream = stream_for(y);
  const Plan plan = plan_for(args);
  const WorkspaceBytes bytes(plan);
  const Tensor memory = Tensor::like(y, DType::I8, {static_cast<int64_t>(bytes.total())});
  const Workspace workspace = bytes.at(memory.raw());
  const Source q_source{q.data<__nv_bfloat16>(), strides_of(q)}, k_source{k.data<__nv_bfloat16>(), strides_of(k)},
      v_source{v.data<__nv_bfloat16>(), strides_of(v)};
  constexpr float kLog2E = 1.4426950408889634f;
  check_cuda(cudaFuncSetAttribute(operands_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kOperandBytes), "attention");
  check_cuda(cudaFuncSetAttribute(attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "attention");
  operands_kernel<<<operand_blocks(plan), kWriters, kOperandBytes, stream.handle()>>>(q_source, k_source, v_source, plan,
                                                                                      workspace, args.scale * kLog2E);
  stream.enqueued("attention operands", {.bytes = 1.5 * traffic({&q, &k, &v})});
  attention_kernel<<<static_cast<unsigned>(plan.blocks), kThreads, kSharedBytes, stream.handle()>>>(
      plan, workspace, Target{y.data<__nv_bfloat16>(), strides_of(y)});
  stream.enqueued("attention 8-bit", {.flop = 4.0 * static_cast<double>(q.numel()) * static_cast<double>(k.dim(1))});
}

}  // namespace flux2::cuda
