#!/usr/bin/env bash
# Interrupts commands that write files, in every way the tests know, and reports how often.
#   scripts/faults.sh [BUILD FOLDER, default build]
# Makes every single write, fsync, rename, mmap and thread creation fail, and every allocation with another chain of callers, in
# convert, generate, lora merge and models install; then kills each of them 100 times. Takes an hour or more.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

folder=${1:-build}
[[ -f $folder/CMakeCache.txt ]] || configure "$folder" -DCMAKE_BUILD_TYPE=Release -DFLUX2_CUDA=OFF
build "$folder" fault_tests kill_tests

status=0
say "every fault"
FLUX2_FAULTS=all "$folder/tests/fault_tests" --gtest_filter='Calls/*' --gtest_brief=1 || status=1
say "100 kills each"
FLUX2_KILLS=100 "$folder/tests/kill_tests" || status=1
(( status == 0 )) || die "some runs did not end as they should"
echo "every run ended with a sentence or with success, and no file was wrong"
