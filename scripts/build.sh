#!/usr/bin/env bash
# Builds the program: build/flux2, from a fresh Debian or Ubuntu with nothing but bash and git.
# Extra CMake flags: FLUX2_CMAKE_ARGS="-DFLUX2_CUDA=OFF" scripts/build.sh
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

build_program
echo "built build/flux2"
