"""What `flux2 plan` forecasts beside what generating takes: peak memory of the device for ten combinations of model, size,
references, precision and offload, and the step time of networks that are streamed.
  python3 bench/plan_check.py --flux2 build/flux2 --klein-4b FOLDER [--klein-9b FOLDER] [--steps 4] [--json FILE]
Folders come from `flux2 models synth --variant klein-4b --needed-layers --out FOLDER`. Pictures whose settings differ only in
where weights lie must be the same bytes; a group names the ones that are compared. Exit status 1 when a forecast is more than
a tenth off or bytes differ."""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

CASES = [  # model, group of equal pictures, options
    ("klein-4b", "512", ["--size", "512"]),
    ("klein-4b", "1024", ["--size", "1024"]),
    ("klein-4b", "1024", ["--size", "1024", "--offload", "encoder"]),
    ("klein-4b", "1024", ["--size", "1024", "--offload", "stream"]),
    ("klein-4b", "1024", ["--size", "1024", "--max-vram", "8"]),
    ("klein-4b", "1024", ["--size", "1024", "--max-vram", "6"]),
    ("klein-4b", None, ["--size", "1024", "--batch", "2"]),
    ("klein-4b", None, ["--size", "1024", "-i", "REFERENCE"]),
    ("klein-4b", None, ["--size", "1024", "--quant", "fp8"]),
    ("klein-9b", "9b", ["--size", "1024", "--offload", "encoder"]),
    ("klein-9b", "9b", ["--size", "1024", "--max-vram", "6"]),
    ("klein-9b", "9b", ["--size", "1024", "--offload", "stream"]),
]


def run(flux2, words):
    done = subprocess.run([flux2, *words], capture_output=True, text=True)
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["no message"])[-1]
    return json.loads(done.stdout), None


def pixels(path):  # of a PNG: its chunks of picture data, without the text that says how long it took
    data, at, found = path.read_bytes(), 8, hashlib.sha256()
    while at < len(data):
        length = int.from_bytes(data[at:at + 4], "big")
        if data[at + 4:at + 8] in (b"IHDR", b"IDAT"):
            found.update(data[at + 8:at + 8 + length])
        at += 12 + length
    return found.hexdigest()[:12]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--flux2", default="build/flux2")
    p.add_argument("--klein-4b")
    p.add_argument("--klein-9b")
    p.add_argument("--steps", default="4")
    p.add_argument("--device", default="auto")
    p.add_argument("--json")
    a = p.parse_args()
    folders = {"klein-4b": a.klein_4b, "klein-9b": a.klein_9b}
    rows, groups, wrong = [], {}, 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, (model, group, options) in enumerate(CASES):
            if not folders[model]:
                continue
            options = [str(pathlib.Path(__file__).parent.parent / "docs/images/pico-24.png") if o == "REFERENCE" else o
                       for o in options]
            words = ["-p", "a fox", "-m", folders[model], "--steps", a.steps, "--seed", "7", "--device", a.device, "--json", "-q", *options]
            out = pathlib.Path(scratch) / str(number)  # a folder of its own: a batch numbers its pictures
            out.mkdir()
            row = {"model": model, "options": " ".join(options)}
            rows.append(row)
            plan, fault = run(a.flux2, ["plan", *words])
            made, fault = (None, fault) if fault else run(a.flux2, ["generate", *words, "-o", str(out / "picture.png")])
            if fault:
                row["fault"] = fault
                wrong += 1
                print(f"{model:9} {row['options'][:60]:60} {fault}", flush=True)
                continue
            forecast = plan["requests"][0]["plan"]["forecast"]
            peak = made["memory"]["peak_device"]
            row |= {"forecast": forecast["peak_bytes"], "peak": peak, "ratio": forecast["peak_bytes"] / peak,
                    "placement": forecast["placement"], "seconds": forecast["seconds"], "timings": made["timings"],
                    "pixels": pixels(min(out.iterdir())), "step_ms": made["timings"]["denoise"] / int(a.steps)}
            same = groups.setdefault(group, row["pixels"]) == row["pixels"] if group else True
            near = abs(row["ratio"] - 1) <= 0.1
            wrong += not (same and near)
            print(f"{model:9} {row['options'][-60:]:60} plan {row['forecast'] / 2**30:6.2f} GiB, peak {peak / 2**30:6.2f} GiB, "
                  f"ratio {row['ratio']:.3f}{'' if near else ' WRONG'}, step {row['step_ms']:.1f} ms, pixels {row['pixels']}"
                  f"{'' if same else ' DIFFER'}; {row['placement']}", flush=True)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(rows, indent=1))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
