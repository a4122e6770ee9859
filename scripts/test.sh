#!/usr/bin/env bash
# Builds everything, warnings being errors, and runs all tests.
#   scripts/test.sh [--fast | --unit] [--preset asan|tsan|debug|release]
# --fast leaves out the tests labelled slow; --unit builds and runs only those beside the code. Says how long configuring, building
# and testing took. The last line is "N passed, N failed[, N skipped]".
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

preset=release
selection=()
targets=()
while (( $# > 0 )); do
  case $1 in
    --fast) selection=(-LE slow) ;;
    --unit) selection=(-L unit -LE slow) targets=(unit_tests) ;;
    --preset) preset=${2:?--preset needs a name}; shift ;;
    *) die "usage: scripts/test.sh [--fast | --unit] [--preset asan|tsan|debug|release]" ;;
  esac
  shift
done
case $preset in
  release) folder=build ;;
  debug | asan | tsan) folder=build-$preset ;;
  *) die "there is no preset $preset: choose asan, tsan, debug or release" ;;
esac

case $preset in
  asan | tsan) werror=OFF ;;  # g++ warns by mistake of what its sanitizers add
  *) werror=ON ;;
esac

# For unit tests alone the libraries are compiled several files at a time as well.
quick=()
(( ${#targets[@]} == 0 )) || quick=(-DFLUX2_UNITY_LIBRARIES=ON)

need_packages "${build_packages[@]}" "${test_packages[@]}"
SECONDS=0
if ! configure "$folder" --preset "$preset" -DFLUX2_WERROR=$werror "${quick[@]}"; then
  echo "configuring failed"
  closing_line 0 1 0
  exit 1
fi
configured=$SECONDS
if ! build "$folder" "${targets[@]}"; then
  echo "the build failed"
  closing_line 0 1 0
  exit 1
fi

built=$SECONDS
say "running the tests of $folder"
report=$PWD/$folder/test-report.xml
rm -f "$report"
status=0
# A folder of its own, so that two runs on one machine do not meet, and nothing is left behind.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
TMPDIR=$scratch TEST_TMPDIR=$scratch ctest --test-dir "$folder" -j "$(build_jobs)" --output-on-failure --output-junit "$report" "${selection[@]}" >&2 || status=$?

# The first element of the report carries the totals: <testsuite … tests="9" failures="1" disabled="0" skipped="2" …>
count() {
  local n
  n=$(sed -n "/<testsuite/,/>/s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$report" 2>/dev/null | head -n 1) || true
  echo "${n:-0}"
}
failed=$(count failures)
skipped=$(( $(count skipped) + $(count disabled) ))
passed=$(( $(count tests) - failed - skipped ))
# Nothing run, or a bad end without a failed test, is no success.
if (( failed == 0 && (passed == 0 || status != 0) )); then failed=1; fi
echo "configured in $configured s, built in $(( built - configured )) s, tested in $(( SECONDS - built )) s"
closing_line "$passed" "$failed" "$skipped"
(( failed == 0 && status == 0 ))
