#!/usr/bin/env bash
# Builds the program without any optional library and makes a picture with it.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_packages "${build_packages[@]}"
configure build-minimal --preset release -B build-minimal -DFLUX2_UNITY_LIBRARIES=ON -DFLUX2_WITHOUT=all -DFLUX2_TESTS=OFF -DFLUX2_BENCH=OFF -DFLUX2_WERROR=ON
build build-minimal flux2

picture=build-minimal/circle.png
rm -f "$picture"
build-minimal/flux2 generate "a red circle on a blue background" --model models/pico --device cpu --seed 1 --output "$picture" >&2
is_png "$picture" || die "$picture is no picture"
if links_with build-minimal/flux2 'libwebp|libcurl|libsqlite|liblcms|libtomlplusplus|libre2|libpq|libzip|libcu'; then
  die "build-minimal/flux2 is linked with a library that was left out"
fi
echo "the program works without optional libraries"
