#!/usr/bin/env bash
# Checks `flux2 serve` with clients that people use (PyPI openai, PyPI webuiapi, dj-flux2's protocol), with an S3-compatible store (PyPI
# moto), and its page with a browser (Chromium, where the system has a package of it).
#
#   scripts/check-clients.sh [PROGRAM]     default: build/flux2, which is built first
#
# FLUX2_CLIENT_VENV names a Python environment that has the clients already; without it a new one is made.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

if [[ $# -gt 0 ]]; then
  program=$1
else
  build_program
  program=build/flux2
fi
[[ -x $program ]] || die "Program $program not found."

work=$(mktemp -d)
servers=()
stop_servers() {
  local server
  for server in "${servers[@]}"; do kill -TERM "$server" 2>/dev/null || true; done
  for server in "${servers[@]}"; do wait "$server" 2>/dev/null || true; done
  rm -rf "$work"
}
trap stop_servers EXIT

venv=${FLUX2_CLIENT_VENV:-}
if [[ -z $venv ]]; then
  need_packages python3-venv
  say "installing the clients"
  venv=$work/venv
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q openai webuiapi requests pillow websockets schemathesis 'moto[server]' boto3 \
    playwright axe-playwright-python >&2
fi

# An S3-compatible store that checks every signature, on a free port. It sets the variables of its keys.
start_s3() {
  local port waited
  port=$("$venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$work/s3.log" 2>&1 &
  servers+=($!)
  for ((waited = 0; waited < 300; waited++)); do
    ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    sleep 0.1
  done
  "$venv/bin/python" tests/clients/s3_store.py "http://127.0.0.1:$port" >"$work/s3.env" || die "The S3 store did not start." "$(tail "$work/s3.log")"
  # shellcheck disable=SC1091
  source "$work/s3.env"
}

# start NAME [options…]: sets `url` to the address of a server with a data folder of its own.
start() {
  local name=$1 log="$work/$1.log" waited
  shift
  : >"$log"
  FLUX2_HOME="$work/$name" FLUX2_BUNDLED="$PWD/models/pico" "$program" serve --port 0 --model pico "$@" >"$log" 2>"$log.err" &
  servers+=($!)
  for ((waited = 0; waited < 300; waited++)); do
    url=$(sed -n '1s|.*\(http://[^ ]*[0-9]\).*|\1|p' "$log")
    [[ -z $url ]] || return 0
    kill -0 "${servers[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  cat "$log" "$log.err" >&2
  die "The server $name did not start."
}

say "starting servers"
start main
main=$url
start locked --api-key "a key of this test"
locked=$url
start small --queue 1
small=$url

passed=0 failed=0
# count NAME command…: adds the counts of a script's last line.
count() {
  local name=$1 last
  shift
  say "$name"
  "$@" | tee "$work/$name.out" || true
  last=$(tail -n 1 "$work/$name.out")
  if [[ $last =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
  else
    failed=$((failed + 1))
  fi
}

count openai "$venv/bin/python" tests/clients/openai_client.py "$main" --locked "$locked" --full-queue "$small"
count sdapi "$venv/bin/python" tests/clients/sdapi_client.py "$main"
count dj "$venv/bin/python" tests/clients/dj_client.py "$main"
start_s3
start s3 --images s3://images/a/folder
count s3 "$venv/bin/python" tests/clients/s3_client.py "$url" "$program"
# The tests of the store itself, where they are built: listings of more than a thousand objects.
store_tests=$(dirname "$program")/server/blobs/server_blobs_tests
if [[ -x $store_tests ]]; then
  say "server_blobs_tests with that store"
  if FLUX2_TEST_S3=1 "$store_tests" --gtest_brief=1 --gtest_filter='*/S3'; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
fi
# Ubuntu's chromium package needs snap, which containers do not have.
grep -q '^ID=debian' /etc/os-release && need_packages chromium
browser=$(command -v chromium || command -v google-chrome || true)
if [[ -n $browser ]]; then
  start page
  count page "$venv/bin/python" tests/clients/page.py "$url" "$browser" --locked "$locked" --program "$program" --data "$work/page"
else
  say "the page was not tested: Chromium is not installed"
fi
count hostile python3 tests/clients/hostile.py "$program" --count 1000
say "examples of docs/serving.md"
if "$venv/bin/python" tests/clients/docs_examples.py "$main"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
# Requests made from the OpenAPI document: no 5xx, and answers are as it says. Not checked is that every request that fits the
# document is accepted: it cannot say which models exist.
# The health checks that are left out are about schemathesis' own generator: how many of its random values it had to throw away, and how
# slow it was. One of them failed in a run in which every request was right.
say "schemathesis"
if "$venv/bin/schemathesis" run "$main/api/v1/openapi.json" --max-examples 15 --exclude-path-regex '/events$' --request-timeout 60 \
  --exclude-checks positive_data_acceptance --suppress-health-check filter_too_much,too_slow --no-color; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
fi
if ((failed > 0)); then tail -n 30 "$work/main.log.err" >&2; fi
closing_line "$passed" "$failed" 0
((failed == 0))
