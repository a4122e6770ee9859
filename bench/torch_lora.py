"""One step of training a LoRA (forward, flow-matching loss, gradients of every adapter, clipping, AdamW) in flux2 beside PyTorch:
the same shapes, random bf16 weights, F32 adapters on every linear layer of the blocks, one run on one GPU, medians.
  python3 bench/torch_lora.py --flux2 build/flux2 [--cases eager checkpointed compiled] [--variant klein-4b] [--size 1024]
      [--rank 32] [--compile whole|blocks] [--attention any|flash|cudnn] [--untuned] [--json FILE]
PyTorch runs with its own attention and its fused AdamW. `compiled` is torch.compile in its default mode: of the whole model,
which takes minutes, or of one block of each kind, which all blocks share; --untuned takes its first choice for elementwise
kernels instead of timing several. Checkpointed, each block is computed again
(torch.utils.checkpoint), eagerly only."""
import argparse
import contextlib
import json
import statistics
import subprocess
import time

import torch
import torch._inductor.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import gpu_compare
import torch_flux2


class Adapted(torch_flux2.Flux2):
    """The transformer with an adapter on every matrix inside a block."""

    def __init__(self, weights, rank, checkpointed):
        super().__init__(weights)
        self.checkpointed = checkpointed
        self.adapters = {}
        for name, w in weights.items():
            if "_blocks." in name and w.dim() == 2:
                down = torch.randn(rank, w.shape[1], device=w.device) / w.shape[1] ** 0.5
                up = 0.02 * torch.randn(w.shape[0], rank, device=w.device)
                self.adapters[name] = (down.requires_grad_(), up.requires_grad_())

    def linear(self, x, name):
        y = super().linear(x, name)
        if name + ".weight" not in self.adapters:
            return y
        down, up = self.adapters[name + ".weight"]
        return y + F.linear(F.linear(x, down.to(x.dtype)), up.to(x.dtype))

    def double(self, *arguments):
        return self.block(super().double, *arguments)

    def single(self, *arguments):
        return self.block(super().single, *arguments)

    def block(self, function, *arguments):
        return checkpoint(function, *arguments, use_reentrant=False) if self.checkpointed else function(*arguments)


class Block:
    """The weights of one block under the names of block 0, each with its adapter: a value that a compiled function takes."""

    def __init__(self, tensors):
        self.w = tensors

    def linear(self, x, name):
        w, down, up = self.w[name + ".weight"]
        return F.linear(x, w) + F.linear(F.linear(x, down.to(x.dtype)), up.to(x.dtype))

    heads = torch_flux2.Flux2.heads


def double_block(tensors, *arguments):
    return torch_flux2.Flux2.double(Block(tensors), 0, *arguments)


def single_block(tensors, *arguments):
    return torch_flux2.Flux2.single(Block(tensors), 0, *arguments)


class CompiledBlocks(Adapted):
    """Every block calls the same two compiled functions."""

    def __init__(self, weights, rank):
        super().__init__(weights, rank, checkpointed=False)
        self.functions = {"double": torch.compile(double_block, dynamic=False), "single": torch.compile(single_block, dynamic=False)}
        self.blocks = {}
        for name, w in weights.items():
            if "_blocks." in name:
                kind, number, rest = name.split(".", 2)
                block = self.blocks.setdefault((kind.removesuffix("_blocks"), int(number)), {})
                block[f"{kind}.0.{rest}"] = (w, *self.adapters[name]) if name in self.adapters else w

    def double(self, i, *arguments):
        return self.functions["double"](self.blocks["double", i], *arguments)

    def single(self, i, *arguments):
        return self.functions["single"](self.blocks["single", i], *arguments)


CASES = {"eager": (False, False), "checkpointed": (True, False), "compiled": (False, True)}  # checkpointed, compiled
ATTENTION = {"any": None, "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def torch_step(model, parameters, optimiser, arguments, target):
    loss = F.mse_loss(model(*arguments).float(), target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def torch_case(weights, args, checkpointed, compiled):
    by_blocks = compiled and args.compile == "blocks"
    model = CompiledBlocks(weights, args.rank) if by_blocks else Adapted(weights, args.rank, checkpointed)
    parameters = [tensor for pair in model.adapters.values() for tensor in pair]
    optimiser = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    arguments = gpu_compare.inputs(args.variant, args.size, 0, "cuda")
    target = torch.randn(arguments[0].shape, device="cuda")
    called = torch.compile(model, dynamic=False) if compiled and not by_blocks else model
    start = time.time()
    for _ in range(3):
        torch_step(called, parameters, optimiser, arguments, target)
    torch.cuda.synchronize()
    if compiled:
        print(f"compiled in {time.time() - start:.0f} s", flush=True)
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(args.repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        torch_step(called, parameters, optimiser, arguments, target)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return {"ms": statistics.median(times), "peak_bytes": torch.cuda.max_memory_allocated()}


def flux2_case(args, checkpointed):
    command = [args.flux2, "bench", "train", "--device", "cuda", "--variant", args.variant, "--size", str(args.size),
               "--rank", str(args.rank), "--repeat", str(args.repeat), "--json"] + ["--checkpoint"] * checkpointed
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"ms": result["ms"], "peak_bytes": result["memory"]["peak_device"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flux2", default="build/flux2")
    parser.add_argument("--variant", default="klein-4b", choices=gpu_compare.GEOMETRY)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--compile", choices=["whole", "blocks"], default="whole")
    parser.add_argument("--untuned", action="store_true")
    parser.add_argument("--attention", choices=ATTENTION, default="any")
    parser.add_argument("--json")
    args = parser.parse_args()

    # Whether padding a matrix pays is measured while compiling, which ended with an illegal memory access in PyTorch 2.11.
    torch._inductor.config.shape_padding = False
    torch._inductor.config.triton.autotune_pointwise = not args.untuned
    weights = gpu_compare.random_weights(args.variant, "cuda")
    results = {}
    for case in args.cases:
        checkpointed, compiled = CASES[case]
        with contextlib.nullcontext() if args.attention == "any" else sdpa_kernel(ATTENTION[args.attention]):
            theirs = torch_case(weights, args, checkpointed, compiled)
        torch.cuda.empty_cache()
        ours = flux2_case(args, checkpointed)
        results[case] = {"torch": theirs, "flux2": ours}
        print(f"{args.variant} {args.size} rank {args.rank} {case}: PyTorch {theirs['ms']:.1f} ms, {theirs['peak_bytes'] / 1e9:.1f} GB; "
              f"flux2 {ours['ms']:.1f} ms, {ours['peak_bytes'] / 1e9:.1f} GB; ratio {ours['ms'] / theirs['ms']:.3f}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
