#pragma once

#include <initializer_list>
#include <memory>

#include "backend/cpu/gemm/driver.h"
#include "backend/cpu/gemm/kernel_set.h"

namespace flux2::gemm {

// True when every operand (null ones aside) has a dtype the driver reads; F64 belongs to the scalar table.
bool computes(std::initializer_list<const Tensor*> operands);

Workers workers_of(const Tensor& output);

// A bias as f32 in the stream's memory; null for none.
std::shared_ptr<const float> bias_of(const Tensor* bias, Stream& stream);

// The factors of a weight's rows, one for each; null for none.
std::shared_ptr<const float> scales_of(const Tensor& w, Stream& stream);

// dy [M, N] with column n multiplied by the factor of row n of a weight [N, K]; dy itself when the weight has none.
Tensor times_scales(const Tensor& dy, const Tensor& w);

// y as rows of its last axis: [M, N] with any row stride, or contiguous of any rank.
Output output_of(const Tensor& y, const float* bias = nullptr);

// An image as T: itself, or for bf16 a copy, made once instead of for each of the taps that read a pixel.
template <class T>
Tensor image_as(const Tensor& x);

// Calls f with the micro-kernel for weights of this dtype. f32 weights keep f32 products: they are stored that way for precision,
// and bf16 panels would not make reading them cheaper.
template <class F>
void with_kernel(const KernelSet& set, DType weight, const F& f) {
  if (set.in_bf16 && weight != DType::F32) f(*set.in_bf16);
  else f(*set.in_f32);
}

}  // namespace flux2::gemm
