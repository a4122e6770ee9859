"""A model in every layout and type that `flux2 convert` writes: bytes, error of the weights, and what that does to pictures.
  python3 bench/every_format.py --flux2 build/flux2 [--model FOLDER] [--size 128] [--steps 4] [--pictures 4] [--json FILE]
Without --model one with random weights is made (`flux2 models synth`). Prints a Markdown table. A type whose rows are what the
source has must draw the very same pictures; exit status 1 when it does not, or when a conversion fails."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

SAFETENSORS = ["keep", "f32", "f16", "bf16", "int8", "fp8_block", "fp8", "nvfp4"]
GGUF = ["f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "iq4_xs", "iq4_nl", "q4_0", "q3_k", "q2_k"]
CASES = (
    [("bfl", quant, "{}.safetensors") for quant in SAFETENSORS]
    + [("comfy", quant, "{}.safetensors") for quant in ("fp8", "int8", "nvfp4")]
    + [("diffusers", quant, "{}.safetensors") for quant in ("keep", "fp8", "int8", "nvfp4")]
    + [("diffusers folder", quant, "{}") for quant in ("keep", "f32")]
    + [("gguf", quant, "{}.gguf") for quant in GGUF]
)
EXACT = {"keep", "bf16", "f32"}  # of a bf16 source
PROMPTS = ["a red fox in the snow", "a lighthouse at dusk", "two cups on a table", "a city from above"]


def run(flux2, *words):
    done = subprocess.run([flux2, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[0])
    return done.stdout


def convert(arguments, model, prompts, folder, layout, quant, name):
    out = folder / name.format(f"{layout.replace(' ', '-')}-{quant}")
    told = json.loads(run(
        arguments.flux2, "convert", model, "--part", "transformer", "-o", out, "--to", layout.split()[0], "--quant", quant,
        "--calibrate", prompts, "--profile", arguments.profile, "--shard-size", arguments.shard_size, "--json", "--quiet",
    ))
    pictures = told["pictures"]
    return {
        "layout": layout, "type": quant, "bytes": told["bytes"], "error": told["error"], "psnr": pictures["psnr"],
        "max": max(p["max"] for p in pictures["list"]),
    }


def line(row, source_bytes):
    psnr = "identical" if row["psnr"] is None else f"{row['psnr']:.1f} dB"
    error = "0" if row["error"] == 0 else f"{100 * row['error']:.2g} %"
    share = row["bytes"] / source_bytes
    return f"| {row['layout']} | {row['type']} | {100 * share:.0f} % | {error} | {psnr} | {row['max']} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flux2", default="build/flux2")
    parser.add_argument("--model")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--pictures", type=int, default=4)
    parser.add_argument("--profile", default="exact")
    parser.add_argument("--shard-size", default="10")
    parser.add_argument("--json")
    arguments = parser.parse_args()

    rows, failures = [], []
    with tempfile.TemporaryDirectory(prefix="flux2-formats-") as scratch:
        scratch = pathlib.Path(scratch)
        model = arguments.model or scratch / "model"
        if not arguments.model:
            run(arguments.flux2, "models", "synth", "--variant", "tiny", "--out", model, "--quiet")
        prompts = scratch / "prompts.txt"
        prompts.write_text("".join(
            f"{PROMPTS[i % len(PROMPTS)]} --w {arguments.size} --h {arguments.size} --s {arguments.steps} --d {i + 1}\n"
            for i in range(arguments.pictures)
        ))
        for layout, quant, name in CASES:
            try:
                row = convert(arguments, model, prompts, scratch, layout, quant, name)
            except RuntimeError as error:
                failures.append(f"{layout} {quant}: {error}")
                continue
            rows.append(row)
            if quant in EXACT and row["psnr"] is not None:
                failures.append(f"{layout} {quant}: pictures differ though the weights do not")
    source_bytes = next((row["bytes"] for row in rows if row["type"] == "keep"), 1)
    print("| layout | type | size | error of the weights | pictures | largest difference |\n|---|---|---|---|---|---|")
    for row in rows:
        print(line(row, source_bytes))
    for failure in failures:
        print(failure, file=sys.stderr)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
