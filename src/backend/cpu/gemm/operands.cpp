#include "backend/cpu/gemm/operands.h"

#include <algorithm>

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

std::shared_ptr<const float> scales_of(const Tensor& w, Stream& stream) {
  const Tensor& scales = w.scales();
  if (!scales.defined()) return nullptr;
  auto values = std::static_pointer_cast<float>(stream.allocate(static_cast<size_t>(w.dim(0)) * sizeof(float)));
  if (scales.numel() == 1) std::fill_n(values.get(), w.dim(0), *scales.data<float>());
  else std::copy_n(scales.data<float>(), w.dim(0), values.get());
  return values;
}

Tensor times_scales(const Tensor& dy, const Tensor& w) {
  const Workers workers = workers_of(dy);
  const auto scales = scales_of(w, workers.stream);
  if (!scales) return dy;
  const Tensor scaled = Tensor::empty(workers.stream, DType::F32, dy.shape());
  const MatrixRows<float> rows(dy);
  const int64_t n = dy.dim(1);
  workers.threads.parallel_ranges(dy.dim(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* out = scaled.data<float>() + r * n;
      const float* row;
      rows.rows(r, 1, 0, n, &row, out);
      for (int64_t j = 0; j < n; ++j) out[j] = row[j] * scales.get()[j];
    }
  });
  return scaled;
}

template <>
Tensor image_as<float>(const Tensor& x) {
  return x;
}

template <>
Tensor image_as<bf16>(const Tensor& x) {
  if (x.dtype() == DType::BF16) return x;
  const Workers workers = workers_of(x);
  const Tensor image = Tensor::empty(workers.stream, DType::BF16, x.shape());
  workers.threads.parallel_ranges(x.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    convert(x.dtype(), x.raw(), begin, end - begin, image.data<bf16>() + begin);
  });
  return image;
}

Output output_of(const Tensor& y, const float* bias) {
  return {y.raw(), y.dtype(), y.rank() == 2 ? y.stride(0) : y.dim(-1), bias};
}

}  // namespace flux2::gemm
