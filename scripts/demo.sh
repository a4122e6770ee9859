#!/usr/bin/env bash
# Builds the program and generates an image with the bundled model: demo.png.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

build_program
prompt="a large red circle in the center on a blue background"
say "build/flux2 generate \"$prompt\" --seed 1 -o demo.png"
build/flux2 generate "$prompt" --model models/pico-4-steps --seed 1 --output demo.png --show auto

cat <<END

The image is $PWD/demo.png

Try next:
  build/flux2 generate "a panda on a green background with yellow dots" -m models/pico-4-steps -o panda.png --show auto
  build/flux2 generate "a castle on a pink background" -m models/pico-4-steps --batch 4 -o castles/
  build/flux2 inspect demo.png       what made this image
  build/flux2 help                   everything else
END
