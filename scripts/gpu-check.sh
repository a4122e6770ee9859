#!/usr/bin/env bash
# What needs an NVIDIA GPU, in three parts: scripts/gpu-check.sh build|test|bench
# Installs nothing: it needs nvcc, g++, cmake, ninja and the required libraries; bench needs python3 with torch.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

folder=build-gpu
# A checked kernel is tens of times slower: the large cases stay out.
fast='CudaKernels*:CudaFused*:*CudaEightBit*:CudaUnpack*:-*Large*:*Chunks*:*EveryTime'
shared_memory='CudaKernels*Norm*:CudaKernels*Sum*:CudaFused*Norm*:*CudaEightBit*Norm*:*CudaEightBit*Quantise*'
usage="usage: scripts/gpu-check.sh build|test|bench"

gpu_build() {
  export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
  configure "$folder" -DCMAKE_BUILD_TYPE=Release -DFLUX2_CUDA=ON
  build "$folder"
}

gpu_test() {
  local status=0 sanitizer tests=$folder/src/backend/cuda/backend_cuda_tests
  ctest --test-dir "$folder" --output-on-failure --no-tests=error -j 4 -C single \
    -R 'Cuda|OpAgreement|Bullet|Golden|Quantised|Gpu' || status=$?
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [[ -x $sanitizer ]]; then
    say "memcheck over the fast cases of $tests"
    "$sanitizer" --tool memcheck --error-exitcode 1 "$tests" --gtest_filter="$fast" || status=$?
    say "racecheck over our kernels that share memory between threads"
    "$sanitizer" --tool racecheck --error-exitcode 1 "$tests" --gtest_filter="$shared_memory" || status=$?
  else
    echo "compute-sanitizer is not here: no memcheck"
  fi
  return "$status"
}

gpu_bench() {
  python3 bench/gpu_compare.py --flux2 "$folder/flux2"
}

case ${1:?$usage} in
  build) gpu_build ;;
  test) gpu_test ;;
  bench) gpu_bench ;;
  *) die "$usage" ;;
esac
