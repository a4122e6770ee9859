# The matrix products: sources for every machine, then the micro-kernels of this architecture, each file compiled for
# the instruction set it uses and entered only when the processor has it.
set(GEMM_SOURCES
  gemm/attention.cpp
  gemm/attention_grad.cpp
  gemm/ceiling.cpp
  gemm/conv2d.cpp
  gemm/convert.cpp
  gemm/convolve.cpp
  gemm/direct.cpp
  gemm/driver.cpp
  gemm/kernel_scalar.cpp
  gemm/linear.cpp
  gemm/one_query.cpp
  gemm/operands.cpp
  gemm/output.cpp
  gemm/panels.cpp
  gemm/patches.cpp
  gemm/quantised_rows.cpp
  gemm/row_dots.cpp
  gemm/row_source.cpp
  gemm/softmax.cpp
  gemm/upsample_conv2d.cpp)
set(GEMM_TESTS
  gemm/attention_test.cpp
  gemm/ceiling_test.cpp
  gemm/conv2d_test.cpp
  gemm/convert_test.cpp
  gemm/driver_test.cpp
  gemm/integer_test.cpp
  gemm/linear_test.cpp
  gemm/row_dots_test.cpp)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND GEMM_SOURCES
    gemm/gemm_aarch64.cpp gemm/kernel_neon_f32.cpp gemm/kernel_neon_bf16.cpp gemm/kernel_neon_int8.cpp gemm/kernel_neon_blocks.cpp
    gemm/row_dots_neon.cpp)
  set_source_files_properties(gemm/row_dots_neon.cpp PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
  set_source_files_properties(gemm/kernel_neon_bf16.cpp PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+bf16")
  set_source_files_properties(gemm/kernel_neon_int8.cpp gemm/kernel_neon_blocks.cpp PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+i8mm")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND GEMM_SOURCES
    gemm/gemm_x86_64.cpp gemm/kernel_avx2.cpp gemm/kernel_avx_vnni.cpp gemm/kernel_avx512.cpp gemm/kernel_avx512_bf16.cpp
    gemm/kernel_avx512_vnni.cpp gemm/kernel_amx.cpp gemm/convert_avx512_bf16.cpp
    gemm/row_dots_avx2.cpp)
  list(APPEND GEMM_TESTS gemm/gemm_x86_64_test.cpp)
  set_source_files_properties(gemm/kernel_avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
  set_source_files_properties(gemm/row_dots_avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  set_source_files_properties(gemm/kernel_avx_vnni.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mavxvnni")
  set_source_files_properties(gemm/kernel_avx512.cpp PROPERTIES COMPILE_OPTIONS "${AVX512}")
  set_source_files_properties(gemm/kernel_avx512_bf16.cpp PROPERTIES COMPILE_OPTIONS "${AVX512};-mavx512bf16")
  set_source_files_properties(gemm/kernel_avx512_vnni.cpp PROPERTIES COMPILE_OPTIONS "${AVX512};-mavx512vnni")
  set_source_files_properties(gemm/convert_avx512_bf16.cpp PROPERTIES
    COMPILE_OPTIONS "${AVX512};-mavx512bw;-mavx512vl;-mavx512bf16;-mf16c")
  set_source_files_properties(gemm/kernel_amx.cpp PROPERTIES
    COMPILE_OPTIONS "${AVX512};-mavx512bw;-mamx-tile;-mamx-bf16;-mamx-int8")
else()
  list(APPEND GEMM_SOURCES gemm/gemm_portable.cpp)
endif()
