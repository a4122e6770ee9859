#!/usr/bin/env bash
# Throws mutated files at every parser of untrusted bytes.
#   scripts/fuzz.sh [SECONDS each, default 300] [safetensors|index|gguf|adapter|tokenizer|image|registry …]
# Starts from tests/fuzz/corpus; what it discovers stays in build-fuzz/found, inputs that break something in
# build-fuzz/findings. The exit status is not 0 when there is a finding.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

seconds=${1:-300}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "usage: scripts/fuzz.sh [SECONDS] [safetensors|index|gguf|adapter|tokenizer|image|registry …]"
shift || true
targets=("$@")
(( $# > 0 )) || targets=(safetensors index gguf adapter tokenizer image registry)

need_packages "${build_packages[@]}" clang
configure build-fuzz -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang \
  -DCMAKE_CXX_FLAGS=-Wno-unknown-warning-option -DFLUX2_FUZZ=ON -DFLUX2_SANITIZE=address,undefined -DFLUX2_CUDA=OFF \
  -DFLUX2_TESTS=OFF -DFLUX2_BENCH=OFF
build build-fuzz "${targets[@]/%/_fuzz}"

broken=()
for target in "${targets[@]}"; do
  say "$target, $seconds s"
  found=build-fuzz/found/$target findings=build-fuzz/findings/$target
  mkdir -p "$found" "$findings"
  # 2 GB and 10 s are limits on one input: a small file must not cost more.
  "build-fuzz/tests/fuzz/${target}_fuzz" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
    -verbosity=0 -artifact_prefix="$findings/" "$found" "tests/fuzz/corpus/$target" 2>&1 |
    sed '/^#* Recommended dictionary/,/^#* End of recommended dictionary/d' || broken+=("$target")
done

(( ${#broken[@]} == 0 )) || die "findings in: ${broken[*]} (inputs in build-fuzz/findings)"
echo "no finding in ${targets[*]}"
