"""One denoising step of flux2 beside PyTorch's (eager and torch.compile, default mode): the same shapes, random bf16
weights and inputs, interleaved in one run on one GPU, medians.
  python3 bench/gpu_compare.py --flux2 build/flux2 [--cases 512 1024 1024+1 klein-9b:1024] [--quant fp8] [--json FILE]
A case is a side in pixels, with +N for N reference pictures of the same size, of klein-4b unless a variant stands before
it. --quant fp8 compares products in e4m3 with torch._scaled_mm on the same layers instead. Compiling takes a minute or more for each case; --no-compile leaves it out. PyTorch projects the text in every step,
which flux2 does once per prompt: 0.07 % of a 1024² step. At the end flux2's other networks and a whole picture, which
have no counterpart here."""
import argparse
import json
import statistics
import subprocess
import time

import torch

import torch_flux2

GEOMETRY = {"klein-4b": (3072, 5, 20, 7680), "klein-9b": (4096, 8, 24, 12288)}
TEXT = 512


def random_weights(variant, device):
    hidden, doubles, singles, context = GEOMETRY[variant]
    shapes = {"img_in.weight": (hidden, 128), "txt_in.weight": (hidden, context),
              "time_in.in_layer.weight": (hidden, 256), "time_in.out_layer.weight": (hidden, hidden),
              "double_stream_modulation_img.lin.weight": (6 * hidden, hidden),
              "double_stream_modulation_txt.lin.weight": (6 * hidden, hidden),
              "single_stream_modulation.lin.weight": (3 * hidden, hidden),
              "final_layer.adaLN_modulation.1.weight": (2 * hidden, hidden), "final_layer.linear.weight": (128, hidden)}
    for i in range(doubles):
        for s in ("img", "txt"):
            p = f"double_blocks.{i}.{s}_"
            shapes |= {p + "attn.qkv.weight": (3 * hidden, hidden), p + "attn.proj.weight": (hidden, hidden),
                       p + "mlp.0.weight": (6 * hidden, hidden), p + "mlp.2.weight": (hidden, 3 * hidden),
                       p + "attn.norm.query_norm.scale": (128,), p + "attn.norm.key_norm.scale": (128,)}
    for i in range(singles):
        p = f"single_blocks.{i}."
        shapes |= {p + "linear1.weight": (9 * hidden, hidden), p + "linear2.weight": (hidden, 4 * hidden),
                   p + "norm.query_norm.scale": (128,), p + "norm.key_norm.scale": (128,)}
    make = lambda s: torch.ones(s, device=device, dtype=torch.bfloat16) if len(s) == 1 else torch.randn(
        s, device=device, dtype=torch.bfloat16) / s[1] ** 0.5
    return {name: make(shape) for name, shape in shapes.items()}


def inputs(variant, side, references, device):
    rows = side // 16
    text, picture = torch_flux2.positions(TEXT, rows, rows, device).split([TEXT, rows * rows])
    ids = [text]
    for k in range(1 + references):
        ids.append(picture.clone())
        ids[-1][:, 0] = 10 * k
    table = torch_flux2.rope_table(torch.cat(ids))
    x = torch.randn(1, rows * rows * (1 + references), 128, device=device, dtype=torch.bfloat16)
    ctx = torch.randn(1, TEXT, GEOMETRY[variant][3], device=device, dtype=torch.bfloat16)
    return x, torch.full((1,), 700.0, device=device), ctx, table


@torch.inference_mode()
def torch_times(model, arguments, repeat, warm):
    for _ in range(warm):
        model(*arguments)
    times = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        model(*arguments)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return times


def flux2_times(program, variant, side, references, repeat, quant):
    command = [program, "bench", "model", "--device", "cuda", "--only", "step", "--variant", variant, "--quant", quant,
               "--size", str(side), "--refs", str(references), "--repeat", str(repeat), "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return next(r["ms"] for r in result["results"] if r["kernel"] == "transformer step, captured")


def flux2_rest(program, repeat, quant):
    """Text encoder, autoencoder and a whole picture of klein-4b at 1024²: milliseconds by name."""
    command = [program, "bench", "model", "--device", "cuda", "--only", "text,decode,encode,picture", "--quant", quant,
               "--repeat", str(repeat), "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {r["kernel"]: r["ms"] for r in result["results"]}


def case_of(text):
    """"klein-9b:1024+1" → ("klein-9b", 1024, 1)"""
    variant, _, size = text.rpartition(":")
    side, _, references = size.partition("+")
    return variant or "klein-4b", int(side), int(references or 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flux2", default="build/flux2")
    parser.add_argument("--cases", nargs="+", default=["512", "1024", "1024+1", "klein-9b:1024"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--quant", choices=["none", "fp8"], default="none")
    parser.add_argument("--json")
    args = parser.parse_args()

    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    torch._dynamo.config.recompile_limit = 32
    results, loaded, eager, compiled = [], None, None, None
    for case in args.cases:
        variant, side, references = case_of(case)
        if variant != loaded:
            eager = compiled = None  # the old weights go first
            model = torch_flux2.Flux2 if args.quant == "none" else torch_flux2.Fp8Flux2
            eager = model(random_weights(variant, "cuda")).eval()
            compiled = torch.compile(eager, dynamic=False)  # a graph of its own for every shape: the strongest default
            loaded = variant
        arguments = inputs(variant, side, references, "cuda")
        models = {"eager": eager}
        if not args.no_compile:
            start = time.time()
            torch_times(compiled, arguments, 1, 3)
            print(f"compiled {case} in {time.time() - start:.0f} s", flush=True)
            models["torch.compile"] = compiled
        times = {name: [] for name in [*models, "flux2"]}
        for _ in range(args.rounds):
            for name, model in models.items():
                times[name] += torch_times(model, arguments, args.repeat, 2)
            times["flux2"].append(flux2_times(args.flux2, variant, side, references, args.repeat, args.quant))
        medians = {name: statistics.median(t) for name, t in times.items()}
        results.append({"case": case, "ms": medians, "range_ms": {name: (min(t), max(t)) for name, t in times.items()}})
        ratios = (f"{name} {ms:.2f} ms (flux2 {medians['flux2'] / ms:.3f} of it)" for name, ms in medians.items())
        print(f"{variant} {case:>8}: " + "   ".join(ratios), flush=True)
    rest = flux2_rest(args.flux2, args.repeat, args.quant)
    print("flux2 klein-4b 1024: " + "   ".join(f"{name} {ms:.2f} ms" for name, ms in rest.items()), flush=True)
    report = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "quant": args.quant, "results": results, "flux2_ms": rest}
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
