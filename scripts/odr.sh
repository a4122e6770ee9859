#!/usr/bin/env bash
# Links the program with -Wodr: a type or function that two sources define differently is an error.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_packages "${build_packages[@]}"
# Only the types matter, so nothing is optimised; the compiler compares them when it links.
configure build-odr -DCMAKE_BUILD_TYPE=Release -DFLUX2_CUDA=OFF -DFLUX2_TESTS=OFF -DFLUX2_BENCH=OFF -DFLUX2_UNITY_LIBRARIES=ON \
  -DCMAKE_CXX_FLAGS="-flto" -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" \
  -DCMAKE_EXE_LINKER_FLAGS="-flto=auto -Wodr -Werror=odr -Wlto-type-mismatch -Werror=lto-type-mismatch" \
  -DCMAKE_AR="$(command -v gcc-ar)" -DCMAKE_RANLIB="$(command -v gcc-ranlib)"
build build-odr flux2
echo "every type has one definition"
