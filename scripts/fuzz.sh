#!/usr/bin/env bash
# Throws mutated files at every parser of untrusted bytes.
#   scripts/fuzz.sh [SECONDS each, default 300] [TARGET …]     targets: the names of tests/fuzz/*_fuzz.cpp
# Starts from tests/fuzz/corpus, with the dictionary tests/fuzz/TARGET.dict where there is one. What it discovers stays in
# build-fuzz/found, inputs that break something in build-fuzz/findings. The exit status is not 0 when there is a finding.
# FLUX2_FUZZ_SEED=N and FLUX2_FUZZ_INPUTS=N repeat a run: the same N inputs for each target. CI uses them, so that its result depends
# on the code alone. Leave them out to search for something new.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

all=()
for file in tests/fuzz/*_fuzz.cpp; do all+=("$(basename "$file" _fuzz.cpp)"); done
seconds=${1:-300}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "usage: scripts/fuzz.sh [SECONDS] [TARGET …]; the targets are: ${all[*]}"
shift || true
targets=("$@")
(( $# > 0 )) || targets=("${all[@]}")
for target in "${targets[@]}"; do
  [[ -f tests/fuzz/${target}_fuzz.cpp ]] || die "unknown target $target; the targets are: ${all[*]}"
done

need_packages "${build_packages[@]}" clang libclang-rt-14-dev
configure build-fuzz -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang \
  -DCMAKE_CXX_FLAGS="-O1 -g1 -Wno-unknown-warning-option" -DFLUX2_FUZZ=ON -DFLUX2_SANITIZE=address,undefined -DFLUX2_CUDA=OFF \
  -DFLUX2_TESTS=OFF -DFLUX2_BENCH=OFF -DFLUX2_UNITY_LIBRARIES=ON
build build-fuzz "${targets[@]/%/_fuzz}"

# fuzz TARGET: 2 GB and 10 s are limits on one input: a small file must not cost more.
fuzz() {
  local found=build-fuzz/found/$1 findings=build-fuzz/findings/$1 dictionary=() repeated=()
  [[ ! -f tests/fuzz/$1.dict ]] || dictionary=(-dict="tests/fuzz/$1.dict")
  [[ -z ${FLUX2_FUZZ_SEED:-} ]] || repeated+=(-seed="$FLUX2_FUZZ_SEED")
  [[ -z ${FLUX2_FUZZ_INPUTS:-} ]] || repeated+=(-runs="$FLUX2_FUZZ_INPUTS")
  # What was discovered before changes the inputs, so a repeated run starts without it.
  (( ${#repeated[@]} == 0 )) || found=$(mktemp -d)
  mkdir -p "$found" "$findings"
  "build-fuzz/tests/fuzz/${1}_fuzz" "${repeated[@]}" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$findings/" "${dictionary[@]}" "$found" "tests/fuzz/corpus/$1" >"build-fuzz/$1.log" 2>&1 ||
    touch "build-fuzz/$1.broken"
  (( ${#repeated[@]} == 0 )) || rm -rf "$found"
}

say "${#targets[@]} targets, $seconds s each, $(nproc) at a time"
rm -f build-fuzz/*.broken
for target in "${targets[@]}"; do
  (( $(jobs -rp | wc -l) < $(nproc) )) || wait -n
  fuzz "$target" &
done
wait

broken=() runs=0
for target in "${targets[@]}"; do
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "build-fuzz/$target.log")
  printf '%-20s %s inputs\n' "$target" "${executed:-0}"
  runs=$(( runs + ${executed:-0} ))
  [[ ! -f build-fuzz/$target.broken ]] || { broken+=("$target"); tail -n 40 "build-fuzz/$target.log"; }
done
(( ${#broken[@]} == 0 )) || die "findings in: ${broken[*]} (inputs in build-fuzz/findings, logs in build-fuzz)"
echo "no finding in ${targets[*]} ($runs inputs)"
