#include "backend/cpu/gemm/operands.h"

#include "backend/cpu/cpu_stream.h"
#include "backend/cpu/gemm/convert.h"

namespace flux2::gemm {

bool computes(std::initializer_list<const Tensor*> operands) {
  for (const Tensor* t : operands)
    if (t && !is_convertible(t->dtype())) return false;
  return true;
}

Workers workers_of(const Tensor& output) {
  CpuStream& stream = cpu_stream(output);
  return {stream.pool(), stream};
}

std::shared_ptr<const float> bias_of(const Tensor* bias, Stream& stream) {
  if (!bias) return nullptr;
  auto values = std::static_pointer_cast<float>(stream.allocate(static_cast<size_t>(bias->numel()) * sizeof(float)));
  convert(bias->dtype(), bias->raw(), 0, bias->numel(), values.get());
  return values;
}

Output output_of(const Tensor& y, const float* bias) {
  return {y.raw(), y.dtype(), y.rank() == 2 ? y.stride(0) : y.dim(-1), bias};
}

}  // namespace flux2::gemm
