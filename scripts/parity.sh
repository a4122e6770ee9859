#!/usr/bin/env bash
# Compares the program with PyTorch, diffusers, transformers and tokenizers on random small models.
# They live in a private environment, .venv-parity, made at the first run; arguments go to tests/parity/run.py.
# The last line is "N passed, N failed[, N skipped]".
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

environment=.venv-parity
requirements=tests/parity/requirements.txt

# invisible-watermark comes without its dependencies: it asks for a second build of OpenCV.
prepare_environment() {
  local stamp
  stamp=$(sha256sum "$requirements")
  [[ $(cat "$environment/requirements.stamp" 2>/dev/null) != "$stamp" ]] || return 0
  python3 -c 'import venv, ensurepip' 2>/dev/null || need_packages python3 python3-venv
  say "making $environment"
  rm -rf "$environment"
  python3 -m venv "$environment" &&
    "$environment/bin/python" -m pip install --disable-pip-version-check --quiet --retries 5 -r "$requirements" >&2 &&
    "$environment/bin/python" -m pip install --disable-pip-version-check --quiet --retries 5 --no-deps 'invisible-watermark==0.2.*' >&2 &&
    printf '%s\n' "$stamp" >"$environment/requirements.stamp"
}

if ! prepare_environment; then
  echo "the Python environment could not be made"
  closing_line 0 1 0
  exit 1
fi
if ! build_program; then
  echo "the build failed"
  closing_line 0 1 0
  exit 1
fi
exec "$environment/bin/python" tests/parity/run.py --program build/flux2 "$@"
