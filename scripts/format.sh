#!/usr/bin/env bash
# Names every source that clang-format would change; --fix changes them.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

# Versions of clang-format differ in details, so one decides: that of Debian 12.
need_packages "${format_packages[@]}"
formatter=$(command -v clang-format-14 || command -v clang-format) || die "clang-format is missing"
mapfile -t sources < <(git ls-files -- '*.cpp' '*.h' '*.cu' '*.cuh' '*.inc')

if [[ ${1:-} == --fix ]]; then
  "$formatter" -i "${sources[@]}"
  exit
fi
mapfile -t wrong < <(printf '%s\0' "${sources[@]}" | xargs -0 -n 40 "$formatter" --dry-run -Werror 2>&1 |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error:.*/\1/p' | sort -u)
(( ${#wrong[@]} == 0 )) || die "These files are not formatted (scripts/format.sh --fix does it):" "${wrong[@]/#/  }"
echo "${#sources[@]} files are formatted"
