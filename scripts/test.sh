#!/usr/bin/env bash
# Builds everything, warnings being errors, and runs all tests.
#   scripts/test.sh [--fast | --unit] [--preset asan|tsan|debug|release]
# --fast leaves out the tests labelled slow and those in tests/slow_tests.txt; --unit builds and runs only the tests beside the code.
# Says how long configuring, building and testing took. The last line is "N passed, N failed[, N skipped]".
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

preset=release
selection=()
targets=()
while (( $# > 0 )); do
  case $1 in
    --fast)
      slow=$(sed 's/ *#.*//; /^$/d' tests/slow_tests.txt)
      # Programs that run whole leave them out (tests/support/test_main.cpp), CTest those that have a process of their own. There,
      # the values of parameters follow the name.
      export FLUX2_SLOW_TESTS=${slow//$'\n'/:}
      slow=${slow//./\\.}
      slow=${slow//\*/.*}
      selection=(-LE slow -E "^(${slow//$'\n'/|})( |\$)")
      ;;
    --unit) selection=(-L unit -LE slow) targets=(unit_tests) ;;
    --preset) preset=${2:?--preset needs a name}; shift ;;
    *) die "usage: scripts/test.sh [--fast | --unit] [--preset asan|tsan|debug|release]" ;;
  esac
  shift
done
case $preset in
  release) folder=build ;;
  debug | asan | tsan) folder=build-$preset ;;
  *) die "unknown preset $preset: choose asan, tsan, debug or release" ;;
esac

case $preset in
  asan | tsan) werror=OFF ;;  # g++ warns by mistake of what its sanitizers add
  *) werror=ON ;;
esac

# A new folder compiles libraries several files at a time, which takes half the time. A folder that exists keeps its setting: while you
# work on one file, compiling that one alone is quicker (FLUX2_CMAKE_ARGS=-DFLUX2_UNITY_LIBRARIES=OFF).
quick=()
[[ -f $folder/CMakeCache.txt ]] || quick=(-DFLUX2_UNITY_LIBRARIES=ON)

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
mkdir "$scratch/journals" "$scratch/tmp"
# One more than there are cores, because many tests wait: for servers, databases and time limits.
TMPDIR=$scratch/tmp TEST_TMPDIR=$scratch/tmp FLUX2_TEST_JOURNALS=$scratch/journals \
  ctest --test-dir "$folder" -j "$(( $(build_jobs) + 1 ))" \
  --output-on-failure --output-junit "$report" "${selection[@]}" >&2 || status=$?

# Says which tests failed, then "PASSED FAILED SKIPPED" in the last line. A process of CTest is one test, or a part of a program
# with a journal (tests/support/test_main.cpp) of lines like "begin Suite.Test" and "passed Suite.Test".
count_tests() {
  awk -v journals="$scratch/journals" '
    function fail(what) { ++count["failed"]; print "failed: " what }
    /<testcase / {
      match($0, / name="[^"]*"/); name = substr($0, RSTART + 7, RLENGTH - 8)
      match($0, / status="[^"]*"/); status = substr($0, RSTART + 9, RLENGTH - 10)
      before = count["failed"]; running = ""
      while ((found = getline line < (journals "/" name)) > 0) {
        split(line, word, " ")
        running = word[1] == "begin" ? word[2] : ""
        if (word[1] == "failed") fail(word[2] " in " name)
        else if (word[1] != "begin") ++count[word[1]]
      }
      whole = found == 0  # and -1 where there is no journal
      if (running != "") fail(running ", which ended " name)
      else if (whole && status == "fail" && count["failed"] == before) fail(name ", outside of its tests")
      else if (!whole && status == "fail") fail(name)
      else if (!whole && status == "notrun" && (getline reason) > 0 && reason !~ /"SKIP_/) fail(name ", which did not run")
      else if (!whole) ++count[status == "run" ? "passed" : "skipped"]
    }
    END { print count["passed"] + 0, count["failed"] + 0, count["skipped"] + 0 }' "$report"
}
totals="0 0 0"
if [[ -f $report ]]; then
  counted=$(count_tests)
  totals=${counted##*$'\n'}
  [[ $counted == "$totals" ]] || printf '%s\n' "${counted%$'\n'*}"
fi
read -r passed failed skipped <<<"$totals"
# Nothing run, or a bad end without a failed test, is no success.
if (( failed == 0 && (passed == 0 || status != 0) )); then failed=1; fi
echo "configured in $configured s, built in $(( built - configured )) s, tested in $(( SECONDS - built )) s"
closing_line "$passed" "$failed" "$skipped"
(( failed == 0 && status == 0 ))
