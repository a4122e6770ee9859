#!/usr/bin/env bash
# clang-tidy on the sources that a change touches.
#   scripts/tidy.sh [BASE]
# Without BASE: everything since the branch left origin/main; on main itself, the last commit. At most 20 files and ten minutes;
# what was left out is named. The checks are in .clang-tidy; a finding is a failure.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

most=20 seconds=600
# .ci/run says how much of its hour is left; configuring takes a moment.
if [[ -n ${FLUX2_SECONDS_LEFT:-} ]] && (( FLUX2_SECONDS_LEFT - 60 < seconds )); then seconds=$(( FLUX2_SECONDS_LEFT - 60 )); fi

find_base() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || base=
  [[ -n $base && $base != "$(git rev-parse HEAD)" ]] || base=$(git rev-parse --verify --quiet 'HEAD~1') || base=
  echo "$base"
}

base=${1:-$(find_base)}
if [[ -z $base ]]; then
  echo "no earlier commit to compare with"
  exit 0
fi
# Also what is changed here and not committed yet. Kernels for GPUs and CPU instruction sets are left to their compilers.
mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp' 'cli/*.cpp' 'server/*.cpp' 'tests/*.cpp' \
  ':!src/backend/cuda' ':!tests/fuzz')
if (( ${#files[@]} == 0 )); then
  echo "no C++ source was changed since ${base:0:10}"
  exit 0
fi
if (( ${#files[@]} > most )); then
  echo "looking at $most of ${#files[@]} files"
  mapfile -t files < <(printf '%s\n' "${files[@]}" | shuf -n "$most" --random-source=<(yes "$(git rev-parse HEAD)"))
fi

need_packages "${build_packages[@]}" "${test_packages[@]}" "${tidy_packages[@]}"
# One compile command for each file, which a build of several files at a time has not.
configure build-tidy -DCMAKE_BUILD_TYPE=Release -DFLUX2_CUDA=OFF -DFLUX2_BENCH=OFF -DFLUX2_UNITY_TESTS=OFF >/dev/null

# Prints a file's findings, or that there was no time.
look_at() {
  local left=$(( deadline - $(date +%s) )) words status=0
  (( left > 0 )) || { echo "no time for $1"; return 0; }
  grep -qF "/$1\"" build-tidy/compile_commands.json || { echo "$1 is not built here"; return 0; }
  words=$(timeout "$left" clang-tidy -p build-tidy --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-unknown-warning-option "$1" 2>/dev/null) || status=$?
  (( status != 124 )) || { echo "no time for $1"; return 0; }
  (( status == 0 )) || printf '%s\n' "$words"
  return "$(( status != 0 ))"
}
export -f look_at
deadline=$(( $(date +%s) + seconds ))
export deadline
say "clang-tidy on ${#files[@]} files changed since ${base:0:10}"
# shellcheck disable=SC2016  # the inner shell expands it
printf '%s\0' "${files[@]}" | xargs -0 -n1 -P "$(nproc)" bash -c 'look_at "$1"' look_at || die "clang-tidy found something"
echo "clang-tidy found nothing in ${#files[@]} files"
