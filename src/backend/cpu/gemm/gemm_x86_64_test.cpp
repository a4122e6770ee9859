#include "backend/cpu/gemm/convert.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/kernel_x86.h"
#include "backend/cpu/gemm/test_values.h"

namespace flux2::gemm {
namespace {

const CpuFeatures kHaswell = {.avx2 = true, .fma = true};
const CpuFeatures kAlderLake = {.avx2 = true, .fma = true, .avxvnni = true};
const CpuFeatures kIceLake = {.avx2 = true, .fma = true, .avx512f = true, .avx512vnni = true};
const CpuFeatures kZen4 = {.avx2 = true, .fma = true, .avx512f = true, .avx512bf16 = true, .avx512vnni = true};

CpuFeatures sapphire_rapids(bool tiles) {
  CpuFeatures f = kZen4;
  f.avxvnni = true;
  f.slow_avx512bf16 = true;
  f.amx_bf16 = f.amx_int8 = tiles;
  return f;
}

TEST(GemmX86, FastUsesTheBestKernelOfEachProcessor) {
  const auto fast = [](const CpuFeatures& f) { return kernel_set(f, Profile::Fast); };
  EXPECT_EQ(fast(kHaswell).in_f32, &avx2::kKernel);
  EXPECT_EQ(fast(kHaswell).in_int8, nullptr);
  EXPECT_EQ(fast(kAlderLake).in_int8, &avx_vnni::kInt8);
  EXPECT_EQ(fast(kAlderLake).in_blocks, &avx_vnni::kBlocks);
  EXPECT_EQ(fast(kIceLake).in_bf16, nullptr);
  EXPECT_EQ(fast(kIceLake).in_int8, &avx512_vnni::kInt8);
  EXPECT_EQ(fast(kZen4).in_bf16, &avx512_bf16::kKernel);
  EXPECT_EQ(fast(kZen4).in_blocks, &avx512_vnni::kBlocks);
  EXPECT_EQ(fast(sapphire_rapids(true)).in_bf16, &amx::kBf16);
  EXPECT_EQ(fast(sapphire_rapids(true)).in_int8, &amx::kInt8);
  EXPECT_EQ(fast(sapphire_rapids(true)).in_blocks, nullptr);
}

// A virtual machine may hide the tiles.
TEST(GemmX86, F32IsUsedIfBf16IsSlow) {
  const KernelSet& set = kernel_set(sapphire_rapids(false), Profile::Fast);
  EXPECT_EQ(set.in_f32, &avx512::kKernel);
  EXPECT_EQ(set.in_bf16, nullptr);
  EXPECT_EQ(set.in_int8, &avx512_vnni::kInt8);
}

TEST(GemmX86, ExactUsesOnlyF32) {
  for (const CpuFeatures& f : {kHaswell, kAlderLake, kIceLake, kZen4, sapphire_rapids(true)}) {
    const KernelSet& set = kernel_set(f, Profile::Exact);
    EXPECT_EQ(set.in_f32, f.avx512f ? &avx512::kKernel : &avx2::kKernel);
    EXPECT_FALSE(set.in_bf16 || set.in_int8 || set.in_blocks || set.direct);
  }
}

TEST(GemmX86, RowsConvertToTheSameBits) {
  const CpuFeatures features = CpuFeatures::detect();
  if (!features.avx512bf16) GTEST_SKIP() << "no AVX-512-BF16";
  const TestCpu s(Profile::Exact);
  for (DType dtype : {DType::F32, DType::F16, DType::Q8_0, DType::Q4_0}) {
    const Tensor row = is_block_type(dtype) ? block_weight(dtype, 1, 320) : noise(*s.stream, dtype, {1, 320}, 3);
    for (const auto& [start, count] : {std::pair{0, 320}, {32, 64}, {0, 32}, {5, 1}, {7, 15}, {31, 33}, {64, 255}}) {
      std::vector<bf16> want(320, bf16{0x1234}), got = want;
      convert(dtype, row.raw(), start, count, want.data());
      const bool done = avx512_bf16::convert(dtype, row.raw(), start, count, got.data());
      EXPECT_EQ(done, !is_block_type(dtype) || (start % 32 == 0 && count % 32 == 0)) << name_of(dtype);
      for (size_t i = 0; done && i < want.size(); ++i)
        ASSERT_EQ(got[i].bits, want[i].bits) << name_of(dtype) << " from " << start << ", " << count << ": " << i;
    }
  }
  bf16 out;
  EXPECT_FALSE(avx512_bf16::convert(DType::BF16, &out, 0, 1, &out));
}

}  // namespace
}  // namespace flux2::gemm
