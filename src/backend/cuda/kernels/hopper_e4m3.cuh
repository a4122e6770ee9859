#pragma once

#include "backend/cuda/kernels/hopper.cuh"

// Products of 8-bit floating-point numbers by a warpgroup, summed in F32. b holds rows of K; what a thread holds of d is as in
// multiply_64x256x16.
namespace flux2::cuda::hopper {

#define FLUX2_OUT16(d, i)                                                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), \
      "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]),    \
      "+f"(d[i + 15])

// d[64, N] (+)= a[64, 32] · b[N, 32]ᵀ

__device__ inline void multiply_e4m3(float (&d)[96], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
      "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,"
      "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,"
      "%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,"
      "%88,%89,%90,%91,%92,%93,%94,%95"
      "}, %96, %97, add, 1, 1;\n}"
      : FLUX2_OUT16(d, 0), FLUX2_OUT16(d, 16), FLUX2_OUT16(d, 32), FLUX2_OUT16(d, 48), FLUX2_OUT16(d, 64), FLUX2_OUT16(d, 80)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// The same with a in registers: of rows 16 · (warp % 4) + lane / 4 and 8 below it, a[0] and a[1] hold columns
// 4 · (lane % 4) + {0, 1, 2, 3}, a[2] and a[3] those 16 further right.
__device__ inline void multiply_e4m3(float (&d)[64], const uint32_t* a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
      "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,"
      "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
      "}, {%64,%65,%66,%67}, %68, add, 1, 1;\n}"
      : FLUX2_OUT16(d, 0), FLUX2_OUT16(d, 16), FLUX2_OUT16(d, 32), FLUX2_OUT16(d, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

#undef FLUX2_OUT16

}  // namespace flux2::cuda::hopper
