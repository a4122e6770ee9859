"""A step of `flux2 train` beside the same step in PyTorch, on the CPU: a LoRA of the bundled model, batch 4 of 128×128
pixels (64 image and 64 text tokens each), adapters on every linear layer of the blocks, AdamW, gradients clipped to 1.
  python3 bench/torch_train_cpu.py --flux2 build/flux2 --model models/pico/flux-2-pico.safetensors [--threads 2] [--json FILE]
Both sides draw their noise and their times in the step. The programs run in turns, `--rounds` times; printed are the
median step of each program, the fastest and slowest median of a round, and the fastest step. float32 is flux2's profile exact, bfloat16 its
profile fast: weights and activations in bf16, adapters and optimiser in f32 on both sides."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file

import torch_flux2
import torch_lora

BATCH, SIDE, TEXT, RANK = 4, 8, 64, 8
PROFILES = {"float32": "exact", "bfloat16": "fast"}


def torch_steps(weights, dtype, compiled):
    """Yields the seconds of one training step after another."""
    weights = {name: w.to(dtype) for name, w in weights.items()}
    model = torch_lora.Adapted(weights, RANK, checkpointed=False)
    forward = torch.compile(model) if compiled else model
    parameters = [p for pair in model.adapters.values() for p in pair]
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)
    table = torch_flux2.rope_table(torch_flux2.positions(TEXT, SIDE, SIDE, "cpu"))
    x0 = torch.randn(BATCH, SIDE * SIDE, 128)
    text = torch.randn(BATCH, TEXT, weights["txt_in.weight"].shape[1], dtype=dtype)
    while True:
        begin = time.perf_counter()
        noise, t = torch.randn_like(x0), torch.sigmoid(torch.randn(BATCH))
        mixed = torch.lerp(x0, noise, t[:, None, None]).to(dtype)
        loss = F.mse_loss(forward(mixed, 1000 * t, text, table).float(), noise - x0)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        loss.item()
        yield time.perf_counter() - begin


def write_dataset(folder):
    (folder / "images").mkdir(parents=True)
    for i in range(2 * BATCH):
        pixels = np.full((128, 128, 3), 25 * i, dtype=np.uint8)
        pixels[40:88, 40:88] = (220, 0, 200)
        Image.fromarray(pixels).save(folder / "images" / f"{i}.png")
        (folder / "images" / f"{i}.txt").write_text("a small zorp square in the center\n")
    general = {"resolution": 128, "caption_extension": ".txt", "batch_size": BATCH}
    datasets = [{"image_directory": str(folder / "images"), "cache_directory": str(folder / "cache")}]
    (folder / "data.json").write_text(json.dumps({"general": general, "datasets": datasets}))


def flux2_steps(args, folder, profile):
    """The seconds of each step of one run, the first left out, from the times in its log."""
    output = folder / f"run-{profile}"
    subprocess.run([args.flux2, "train", str(folder / "data.json"), "--network_dim", str(RANK), "--network_alpha", str(RANK),
                    "--learning_rate", "1e-3", "--timestep_sampling", "sigmoid", "--max_train_steps", str(args.steps + 2),
                    "--profile", profile, "--threads", str(args.threads), "--output_dir", str(output), "--quiet"], check=True)
    events = [json.loads(line) for line in (output / "last.jsonl").read_text().splitlines()]
    times = [e["time"] for e in events if e["event"] == "step"][-(args.steps + 1):]
    return [b - a for a, b in zip(times, times[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flux2", default="build/flux2")
    parser.add_argument("--model", default="models/pico/flux-2-pico.safetensors")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    weights = load_file(args.model)
    kinds = ["eager"] if args.no_compile else ["eager", "compiled"]
    loops = {(kind, dtype): torch_steps(weights, getattr(torch, dtype), kind == "compiled") for dtype in PROFILES for kind in kinds}
    for loop in loops.values():
        for _ in range(3):
            next(loop)

    rounds = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_dataset(folder)
        for _ in range(args.rounds):
            for dtype, profile in PROFILES.items():
                rounds.setdefault(("flux2", dtype), []).append(flux2_steps(args, folder, profile))
                for kind in kinds:
                    seconds = [next(loops[kind, dtype]) for _ in range(args.steps)]
                    rounds.setdefault(("PyTorch " + kind, dtype), []).append(seconds)

    result = {}
    for (program, dtype), all_seconds in rounds.items():
        medians = [1e3 * statistics.median(seconds) for seconds in all_seconds]
        row = {"ms": statistics.median(medians), "low": min(medians), "high": max(medians),
               "fastest": 1e3 * min(min(seconds) for seconds in all_seconds)}
        result[f"{program} {dtype}"] = row
        print(f"{program:17} {dtype:9} {row['ms']:7.1f} ms ({row['low']:.1f} to {row['high']:.1f}), fastest {row['fastest']:.1f}")
    if args.json:
        report = {"threads": args.threads, "torch": torch.__version__, "load": os.getloadavg(), "results": result}
        pathlib.Path(args.json).write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
