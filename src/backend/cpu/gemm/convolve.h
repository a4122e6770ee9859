#pragma once

#include "backend/cpu/gemm/driver.h"
#include "backend/cpu/gemm/patches.h"

namespace flux2::gemm {

// A convolution as a product: a row for each pixel of the grid, which reads the image as the grid says; a row of `weights`
// [outputs, taps · channels] for each channel of the result. Uses the kernel's TapKernel where the taps of neighbouring pixels
// lie side by side, so that nothing has to be packed, and packs patches otherwise. In f32 both have the same bits.
template <class T>
void convolve(const MicroKernel<T>& kernel, const Tensor& image, const TapGrid& grid, const RowSource<T>& weights,
              Extents extents, const Output& output, const Workers& workers);

}  // namespace flux2::gemm
