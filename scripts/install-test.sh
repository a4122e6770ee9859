#!/usr/bin/env bash
# Installs the build into a new folder, makes a picture with the installed program, checks its completions and manual pages, then
# builds examples/embed against the installed package and makes a picture with that.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

build_program
build build  # libraries that the program does not use are installed too
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=$folder/prefix
cmake --install build --prefix "$prefix" >"$folder/log" || die "$(tail -n 20 "$folder/log")"

# The bundled model is found beside the program, with nothing set and in another folder.
say "the installed program"
( cd "$folder" && env -u FLUX2_BUNDLED FLUX2_HOME="$folder/home" "$prefix/bin/flux2" generate "a red circle on a blue background" \
    --device cpu --seed 1 --output "$folder/program.png" >&2 )
is_png "$folder/program.png" || die "the installed program made no picture"

say "completions and manual pages"
for file in bash-completion/completions/flux2 zsh/site-functions/_flux2 fish/vendor_completions.d/flux2.fish man/man1/flux2.1 \
    man/man1/flux2-generate.1 man/man1/flux2-models-install.1; do
  [[ -s $prefix/share/$file ]] || die "share/$file was not installed"
done
bash -n "$prefix/share/bash-completion/completions/flux2" || die "the bash completions are not valid"
if command -v groff >/dev/null; then
  warnings=$(groff -man -ww -Tutf8 "$prefix/share/man/man1/flux2-generate.1" 2>&1 >/dev/null)
  [[ -z $warnings ]] || die "$warnings"
fi

say "examples/embed"
cmake -S examples/embed -B "$folder/embed" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >&2
cmake --build "$folder/embed" >&2
"$folder/embed/embed" "a red circle on a blue background" "$folder/embed.png"
is_png "$folder/embed.png" || die "examples/embed made no picture"
settings=$("$prefix/bin/flux2" inspect "$folder/embed.png")  # not piped: grep -q may end before the program has written all
[[ $settings == *"a red circle on a blue background"* ]] ||
  die "the picture of examples/embed does not carry its prompt"
echo "the installed program and examples/embed work"
