#pragma once

#include "backend/cpu/gemm/micro_kernel.h"
#include "backend/cpu/gemm/row_dots.h"

namespace flux2::gemm {

namespace avx2 {
extern const MicroKernel<float> kKernel;  // needs FMA as well
extern const RowDots kRowDots;            // this, too
}  // namespace avx2
namespace avx512 {
extern const MicroKernel<float> kKernel;
}
namespace avx512_bf16 {
extern const MicroKernel<bf16> kKernel;
bool convert(DType dtype, const void* row, int64_t start, int64_t count, bf16* out);  // needs BW and VL as well
}  // namespace avx512_bf16
namespace avx_vnni {
extern const MicroKernel<int8_t> kInt8;
extern const BlockKernel kBlocks;
}  // namespace avx_vnni
namespace avx512_vnni {
extern const MicroKernel<int8_t> kInt8;
extern const BlockKernel kBlocks;
}  // namespace avx512_vnni
namespace amx {
extern const MicroKernel<bf16> kBf16;
extern const MicroKernel<int8_t> kInt8;
}  // namespace amx

}  // namespace flux2::gemm
