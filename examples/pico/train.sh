#!/usr/bin/env bash
# Trains pico from nothing, stage by stage. A stage starts from the files of the one before.
#   examples/pico/train.sh model|autoencoder|transformer|larger|distilled|all|image_prompt
# FLUX2: the program (default: build/flux2). OUT: where everything is written (default: pico-run). Words after the stage go to
# `flux2 train`: --device cuda:0, --resume, …. QUICK=1 runs each stage for two steps on a few small scenes, to try the script.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
flux2=${FLUX2:-$here/../../build/flux2}
out=${OUT:-pico-run}
model=$out/model
stage=${1:-}
[ $# -gt 0 ] && shift

usage() {
  sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

# The dataset of a stage; with QUICK a small copy of it.
data_of() {
  local file=$here/$1-data.toml
  if [ -n "${QUICK:-}" ]; then
    mkdir -p "$out"
    sed -E -e 's/^batch_size = .*/batch_size = 1/' -e 's/^num_repeats = .*/num_repeats = 1/' -e 's/count = [0-9]+/count = 2/' \
      -e '/^resolution/{s/128/64/g; s/192/96/g; s/256/128/g}' -e "s|\"things.png\"|\"$here/things.png\"|" \
      "$file" > "$out/$1-data.toml"
    file=$out/$1-data.toml
  fi
  printf '%s\n' "$file"
}

# train STAGE options…: runs `flux2 train` with the stage's configuration.
train() {
  local name=$1
  shift
  local quick=()
  if [ -n "${QUICK:-}" ]; then
    quick=(--max_train_steps 2 --lr_warmup_steps 0)
    [ "$name" = autoencoder ] && quick+=(--vae_crop 64 --vae_statistics 2)
    [ "$name" = distilled ] && quick+=(--distill_teacher_steps 4)
  fi
  "$flux2" train "$(data_of "$name")" --model "$model" --config_file "$here/$name.toml" --output_dir "$out/$name" \
    --output_name "$name" "${quick[@]}" "$@"
}

# install_part FROM TO: a trained part takes its place in the model, all of it or nothing.
install_part() {
  cp "$1" "$2.new"
  mv "$2.new" "$2"
}

make_model() {
  "$flux2" dataset tokenizer "$(data_of transformer)" --entries 1024 --out "$out/tokenizer"
  "$flux2" models create "$here/model.toml" --tokenizer "$out/tokenizer" --out "$model"
}

make_autoencoder() {
  train autoencoder "$@"
  install_part "$out/autoencoder/autoencoder-ema.safetensors" "$model/ae.safetensors"
}

make_transformer() {
  local name=$1
  shift
  train "$name" --sample_prompts "$here/prompts.txt" "$@"
  install_part "$out/$name/$name-ema.safetensors" "$model/flux-2-pico.safetensors"
  install_part "$out/$name/$name-ema-text_encoder.safetensors" "$model/text_encoder/model.safetensors"
}

# The sibling for four steps is a model folder of its own.
make_distilled() {
  train distilled "$@"
  rm -rf "$out/model-4-steps"
  cp -r "$out/distilled/distilled" "$out/model-4-steps"
}

# An image-prompt adapter for the bundled model, with a tiny image encoder of random weights. MODEL: another model.
make_image_prompt() {
  model=${MODEL:-$here/../../models/pico}
  [ -e "$out/clip" ] || "$flux2" models synth --variant clip-tiny --out "$out/clip"
  train image-prompt --image_prompt_encoder "$out/clip" "$@"
}

case "$stage" in
  model) make_model "$@" ;;
  autoencoder) make_autoencoder "$@" ;;
  transformer) make_transformer transformer "$@" ;;
  larger) make_transformer larger "$@" ;;
  distilled) make_distilled "$@" ;;
  image_prompt) make_image_prompt "$@" ;;
  all)
    make_model
    make_autoencoder "$@"
    make_transformer transformer "$@"
    make_transformer larger "$@"
    make_distilled "$@"
    ;;
  *) usage ;;
esac
