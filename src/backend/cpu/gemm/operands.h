#pragma once

#include <initializer_list>
#include <memory>

#include "backend/cpu/gemm/driver.h"
#include "backend/cpu/gemm/kernel_set.h"

namespace flux2::gemm {

// True if the driver can read the dtype of every operand that is not null. The scalar table handles F64.
bool computes(std::initializer_list<const Tensor*> operands);

Workers workers_of(const Tensor& output);

// A bias as f32 in the stream's memory; null if there is no bias.
std::shared_ptr<const float> bias_of(const Tensor* bias, Stream& stream);

// The scales of a weight, one for each row; null if the weight has no scales.
std::shared_ptr<const float> scales_of(const Tensor& w, Stream& stream);

// dy [M, N] with column n multiplied by the scale of row n of the weight [N, K]; dy itself if the weight has no scales.
Tensor times_scales(const Tensor& dy, const Tensor& w);

// y as a matrix whose rows are its last axis. y is [M, N] with any row stride, or contiguous with any rank.
Output output_of(const Tensor& y, const float* bias = nullptr);

// An image with values of type T: x itself, or a bf16 copy. The copy is made once, because each pixel is read by several taps of
// the convolution.
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
