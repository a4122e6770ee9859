"""One step of a full-size transformer: our trace against PyTorch on the same weights and inputs.
usage: full_size.py TRANSFORMER.safetensors TRACE.safetensors [--embeddings FILE] [--quant fp8] [--device cuda|cpu]

Prints the relative error of our velocity against PyTorch in bf16 and in f32, and PyTorch's own bf16-versus-f32 error. With
--quant fp8, for a trace of a run with that setting, PyTorch multiplies the same layers with torch._scaled_mm; ours passes
within 6e-2 of f32 and 1.3 times PyTorch's error."""
import argparse
import os
import sys

import torch
from safetensors.torch import load_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
from torch_flux2 import Flux2, Fp8Flux2, positions, rope_table  # noqa: E402


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("transformer")
    p.add_argument("trace")
    p.add_argument("--embeddings", help="what the run was given as --embeddings, which its trace does not repeat")
    p.add_argument("--quant", choices=["none", "fp8"], default="none")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    trace = load_file(args.trace) | (load_file(args.embeddings) if args.embeddings else {})
    stored = load_file(args.transformer)
    channels, rows, columns = trace["latents.0"].shape
    x = trace["latents.0"].reshape(channels, -1).T[None].to(args.device)
    ctx = trace["text.embeddings"][None].to(args.device)
    table = rope_table(positions(ctx.shape[1], rows, columns, args.device))
    argument = torch.tensor([1000.0 * trace["timesteps"][0].item()], device=args.device)
    ours = trace["velocity.0"].reshape(channels, -1).T[None].to(args.device)
    results = {}
    with torch.no_grad():
        for dtype, kind in ((torch.bfloat16, Fp8Flux2 if args.quant == "fp8" else Flux2), (torch.float32, Flux2)):
            model = kind({k: v.to(args.device, dtype) for k, v in stored.items()})
            results[dtype] = model(x.to(dtype), argument, ctx.to(dtype), table).float()
            del model
    fast, f32 = results[torch.bfloat16], results[torch.float32]
    name = "fp8" if args.quant == "fp8" else "bf16"
    between, error, theirs = relative(ours, fast), relative(ours, f32), relative(fast, f32)
    print(f"ours against PyTorch {name}: {between:.3g}\nours against PyTorch f32: {error:.3g}\n"
          f"PyTorch {name} against PyTorch f32: {theirs:.3g}")
    ok = error <= min(6e-2, 1.3 * theirs) if args.quant == "fp8" else between <= 2e-2
    print(f"{int(ok)} passed, {int(not ok)} failed")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
