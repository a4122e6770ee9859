# Shared by the scripts of this folder: the packages we need, configuring, building, the closing line.
# Sourced, after which the working directory is the repository's root.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The compiler cache shares objects between build folders: paths below the repository count as relative ones.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}

# The server needs Boost 1.81. In Debian 12 that is a package of its own: its libboost-dev is older.
boost_package=libboost-dev
! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || boost_package=libboost1.81-dev

# shellcheck disable=SC2034  # each script uses those it needs
build_packages=(g++ cmake ninja-build pkg-config ccache libfmt-dev nlohmann-json3-dev libcli11-dev libpng-dev libjpeg-dev
  zlib1g-dev libssl-dev libwebp-dev liblcms2-dev libtomlplusplus-dev libcurl4-openssl-dev ca-certificates
  libsqlite3-dev libre2-dev libpq-dev libzip-dev "$boost_package")
# shellcheck disable=SC2034
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev libpcre2-dev libutf8proc-dev libopenblas-dev postgresql)
# shellcheck disable=SC2034
format_packages=(clang-format-14)
# shellcheck disable=SC2034
tidy_packages=(clang-tidy)

say() { printf '\n== %s\n' "$*" >&2; }
die() { printf '%s\n' "$@" >&2; exit 1; }

missing_packages() {
  local package
  for package in "$@"; do
    # Two versions of Boost cannot be installed together. One that is there is not replaced, and the server is left out if it is too old.
    [[ $package != "$boost_package" || ! -e /usr/include/boost/version.hpp ]] || continue
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) == installed ]] || printf '%s\n' "$package"
  done
}

# Installs what is missing of the packages named, asking nothing; where that is not allowed, says what to type.
# FLUX2_SKIP_PACKAGES=1 takes the machine as it is.
need_packages() {
  [[ ${FLUX2_SKIP_PACKAGES:-} != 1 ]] || return 0
  if ! command -v dpkg-query >/dev/null; then
    printf 'This is not Debian or Ubuntu, so no packages are installed. The build needs these, by their Debian names:\n  %s\n' "$*" >&2
    return 0
  fi
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@")
  (( ${#missing[@]} > 0 )) || return 0
  if (( EUID != 0 )); then
    as_root=(sudo -n)
    if ! "${as_root[@]}" true 2>/dev/null; then
      die "These packages are missing and installing them needs root:" "  sudo apt-get install ${missing[*]}" \
        "Run that, then this script again. (FLUX2_SKIP_PACKAGES=1 skips this check.)"
    fi
  fi
  say "installing ${missing[*]}"
  # A fresh machine has no package lists. An update that fails may still leave usable ones: install decides.
  "${as_root[@]}" apt-get update -qq -o Acquire::Retries=3 >&2 || true
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "${missing[@]}" >&2 ||
    die "Could not install: ${missing[*]}" "Install them by hand, then run this script again."
}

# One compile a core, but a GB of memory for each.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  echo $(( memory >= 1 && memory < cores ? memory : cores ))
}

# configure FOLDER [cmake arguments…]: FLUX2_CMAKE_ARGS come last, so that they win.
configure() {
  local folder=$1
  shift
  local extra=()
  read -ra extra <<<"${FLUX2_CMAKE_ARGS:-}"
  cmake -S . -B "$folder" -G Ninja "$@" "${extra[@]}" >&2
}

# build FOLDER [targets…]
build() {
  local folder=$1 target targets=()
  shift
  for target in "$@"; do targets+=(--target "$target"); done
  cmake --build "$folder" -j "$(build_jobs)" "${targets[@]}" >&2
}

# Leaves the program at build/flux2. A folder that is already configured (with tests, say) keeps its settings, so
# that going from one script to the next compiles nothing twice. A new one compiles several files at a time, as scripts/test.sh does.
build_program() {
  need_packages "${build_packages[@]}"
  local first=()
  [[ -f build/CMakeCache.txt ]] || first=(--preset release -DFLUX2_TESTS=OFF -DFLUX2_BENCH=OFF -DFLUX2_UNITY_LIBRARIES=ON)
  configure build "${first[@]}" && build build flux2
}

# is_png FILE: it begins and ends as a PNG does.
is_png() {
  [[ -f $1 && $(head -c 8 "$1" | od -An -tx1 | tr -d ' \n') == 89504e470d0a1a0a && $(tail -c 8 "$1" | head -c 4) == IEND ]]
}

# links_with PROGRAM PATTERN
links_with() { ldd "$1" | grep -qE "$2"; }

# closing_line PASSED FAILED SKIPPED: the last words of everything that tests.
closing_line() {
  if (( $3 > 0 )); then
    echo "$1 passed, $2 failed, $3 skipped"
  else
    echo "$1 passed, $2 failed"
  fi
}
