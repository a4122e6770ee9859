"""Trajectories of the Python optimisers against ours: python optimisers.py --tests build/src/train/optimiser/train_optimiser_tests

Writes start values, gradients and the weights after 100 steps of each optimiser into a folder, and lets the test program compare
its own with them. Needs torch, safetensors, bitsandbytes, prodigyopt, lion-pytorch, came-pytorch, schedulefree and transformers.
Not part of run.py: it compares a library, not the program, and needs packages that nothing else does."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import bitsandbytes
import came_pytorch
import lion_pytorch
import prodigyopt
import schedulefree
import torch
from bitsandbytes.backends.cpu import ops as bitsandbytes_cpu
from bitsandbytes.functional import create_dynamic_map
from bitsandbytes.optim.ademamix import _ReferenceAdEMAMix
from safetensors.torch import save_file
from transformers.optimization import Adafactor, get_scheduler

STEPS = 100
SHAPES = [(7,), (48, 64), (64, 65), (4100,), (2, 3, 37, 33)]

# file name: (class, our name, learning rate, options)
CASES = {
    "adamw": (torch.optim.AdamW, "torch.optim.AdamW", 1e-3, {}),
    "adamw_decay": (torch.optim.AdamW, "adamw", 1e-2, {"betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1}),
    "adamw8bit": (bitsandbytes.optim.AdamW8bit, "adamw8bit", 1e-3, {"weight_decay": 0.01}),
    "lion": (lion_pytorch.Lion, "lion", 1e-4, {"weight_decay": 0.1}),
    "lion8bit": (bitsandbytes.optim.Lion8bit, "lion8bit", 1e-4, {"weight_decay": 0.1}),
    "adafactor": (Adafactor, "adafactor", None, {}),
    "adafactor_warmup": (Adafactor, "adafactor", None, {"warmup_init": True, "weight_decay": 0.1}),
    "adafactor_rate": (
        Adafactor,
        "adafactor",
        1e-3,
        {"relative_step": False, "scale_parameter": False, "beta1": 0.9, "weight_decay": 0.1},
    ),
    "prodigy": (prodigyopt.Prodigy, "prodigy", 1.0, {"d0": 1e-4}),
    "prodigy_safe": (
        prodigyopt.Prodigy,
        "prodigy",
        1.0,
        {"use_bias_correction": True, "safeguard_warmup": True, "weight_decay": 0.01, "d_coef": 2.0},
    ),
    "prodigy_slice": (prodigyopt.Prodigy, "prodigy", 1.0, {"slice_p": 11, "decouple": False, "weight_decay": 0.01}),
    "schedulefree": (schedulefree.AdamWScheduleFree, "adamwschedulefree", 2.5e-3, {"warmup_steps": 10, "weight_decay": 0.1}),
    "schedulefree_r": (schedulefree.AdamWScheduleFree, "adamwschedulefree", 2.5e-3, {"r": 1.0, "weight_lr_power": 1.0}),
    "ademamix": (_ReferenceAdEMAMix, "ademamix", 1e-3, {"t_alpha": 150, "t_beta3": 150}),
    "ademamix8bit": (bitsandbytes.optim.AdEMAMix8bit, "ademamix8bit", 1e-3, {}),
    "came": (came_pytorch.CAME, "came", 1e-3, {"weight_decay": 0.1}),
    "sgd": (torch.optim.SGD, "sgd", 1e-2, {}),
    "sgd_momentum": (torch.optim.SGD, "sgd", 1e-2, {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
    "sgd_nesterov": (torch.optim.SGD, "sgd", 1e-2, {"momentum": 0.9, "nesterov": True}),
}


def round_as_on_a_gpu():
    """Replaces the rounding of 8-bit states in bitsandbytes' CPU code by that of its GPU kernel. The CPU code takes a farther neighbour
    for about one value in 700 and does not keep the sign of values next to zero; the GPU kernel does both right."""

    def rounded(values, code, absmax, out, blocksize):
        flat = values.reshape(-1)
        blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % blocksize)).view(-1, blocksize)
        absmax.copy_(blocks.abs().amax(dim=1))
        relative = flat / absmax.repeat_interleave(blocksize)[: flat.numel()]
        codes = torch.searchsorted((code[1:] + code[:-1]) / 2, relative)
        if code[0] < 0:
            wrong = torch.signbit(code[codes]) != torch.signbit(flat)
            codes += wrong * torch.where(flat > 0, 1, -1)
        out.copy_(codes.to(torch.uint8).view_as(out))

    bitsandbytes_cpu._quant_blockwise_fp32_direct = rounded


# case: (name, warm-up, decay, our options, options of transformers)
SCHEDULES = {
    "linear": ("linear", 10, 0, {}, {}),
    "cosine": ("cosine", 0, 0, {}, {}),
    "constant": ("constant_with_warmup", 7, 0, {}, {}),
    "restarts": ("cosine_with_restarts", 10, 0, {"cycles": 3}, {"num_cycles": 3}),
    "polynomial": ("polynomial", 10, 0, {"power": 2.0}, {"power": 2.0}),
    "inverse": ("inverse_sqrt", 10, 0, {}, {}),
    "inverse_slow": ("inverse_sqrt", 0, 0, {"timescale": 40}, {"timescale": 40}),
    "least": ("cosine_with_min_lr", 10, 0, {"cycles": 1, "least": 0.1}, {"num_cycles": 0.5, "min_lr_rate": 0.1}),
    "stable": (
        "warmup_stable_decay",
        10,
        30,
        {"cycles": 1, "least": 0.2},
        {"num_stable_steps": 60, "num_decay_steps": 30, "min_lr_ratio": 0.2, "num_cycles": 0.5},
    ),
}


def write_schedules(folder):
    factors, metadata = {}, {}
    for case, (name, warmup, decay, ours, theirs) in SCHEDULES.items():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
        total = None if name in ("inverse_sqrt", "warmup_stable_decay", "constant_with_warmup") else 100
        scheduler = get_scheduler(name, optimizer, warmup, total, scheduler_specific_kwargs=theirs)
        rates = []
        for _ in range(110):
            rates.append(scheduler.get_last_lr()[0] / 1e-3)
            optimizer.step()
            scheduler.step()
        factors[case] = torch.tensor(rates, dtype=torch.float64)
        metadata[case] = json.dumps({"name": name, "warmup": str(warmup), "decay": str(decay)} | ours)
    save_file(factors, str(folder / "schedules.safetensors"), metadata)


def slots_of_bitsandbytes(optimizer, parameters):
    """The 8-bit states under our names. AdEMAMix keeps both averages of the gradient in state1."""
    slots = {}
    for i, parameter in enumerate(parameters):
        state = optimizer.state[parameter]
        if "state1" not in state or state["state1"].dtype != torch.uint8:
            continue
        names = {"state1": "state1", "absmax1": "absmax1", "state2": "state2", "absmax2": "absmax2"}
        for theirs, ours in names.items():
            if theirs not in state or state[theirs] is None:
                continue
            value = state[theirs]
            if theirs.endswith("1") and value.dim() > (1 if theirs.startswith("absmax") else parameter.dim()):
                slots[f"slot.{i}/{ours[:-1]}3"] = value[1].contiguous()
                value = value[0]
            slots[f"slot.{i}/{ours}"] = value.contiguous()
    return slots


def run_case(optimiser, rate, options, start, gradients, dtype):
    parameters = [torch.nn.Parameter(p.to(dtype, copy=True)) for p in start]
    # A group each: the reference AdEMAMix applies its schedules once more for every tensor of a group.
    optimizer = optimiser([{"params": [parameter]} for parameter in parameters], lr=rate, **options)
    if hasattr(optimizer, "train"):
        optimizer.train()
    for step in range(STEPS):
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient[step].to(dtype, copy=True)
        optimizer.step()
    return optimizer, parameters


def write_case(folder, name, optimiser, ours, rate, options):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    start = [torch.randn(shape, generator=generator) for shape in SHAPES]
    # A constant part, so that averages differ from zero. Prodigy takes a steady direction as a reason for ever longer steps.
    direction = 0.005 if "prodigy" in name else 0.1
    steady = [direction * torch.randn(shape, generator=generator) for shape in SHAPES]
    gradients = [s + 0.1 * torch.randn((STEPS, *s.shape), generator=generator) for s in steady]
    optimizer, parameters = run_case(optimiser, rate, options, start, gradients, torch.float32)
    eight_bits = "8bit" in name
    # In double, the Python code shows what rounding to float32 costs itself.
    their_error = 0.0
    if not eight_bits:
        exact = run_case(optimiser, rate, options, start, gradients, torch.float64)[1]
        their_error = max((a - b).abs().max().item() for a, b in zip(exact, parameters))
    tensors = {}
    for i, parameter in enumerate(parameters):
        tensors[f"{i}.start"] = start[i]
        tensors[f"{i}.gradients"] = gradients[i].contiguous()
        tensors[f"{i}.expected"] = parameter.detach().clone()
        if not eight_bits:
            tensors[f"{i}.exact"] = exact[i].detach().clone()
    if eight_bits:
        tensors |= slots_of_bitsandbytes(optimizer, parameters)
    if hasattr(optimizer, "eval"):
        optimizer.eval()
        for i, parameter in enumerate(parameters):
            tensors[f"{i}.evaluation"] = parameter.detach().clone()
    metadata = {
        "type": ours,
        "args": json.dumps([f"{key}={value!r}" for key, value in options.items()]),
        "rate": str(rate or 1e-3),
        "tensors": str(len(SHAPES)),
        "steps": str(STEPS),
        "their_error": f"{their_error:.2e}",
        # CAME and Prodigy move their parameters by about 5 here, so one bit is half a millionth.
        "tolerance": "2e-6" if "prodigy" in name or name == "came" or eight_bits else "1e-6",
    }
    save_file(tensors, str(folder / f"{name}.safetensors"), metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", default="build/src/train/optimiser/train_optimiser_tests")
    parser.add_argument("--keep", help="write the trajectories here and keep them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flux2-optimisers-") as scratch:
        folder = pathlib.Path(arguments.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        books = {"signed": create_dynamic_map(signed=True), "unsigned": create_dynamic_map(signed=False)}
        save_file(books, str(folder / "code_books.safetensors"))
        write_schedules(folder)
        round_as_on_a_gpu()
        for name, case in CASES.items():
            write_case(folder, name, *case)
        report = folder / "report.json"
        command = [arguments.tests, "--gtest_filter=OptimiserParity.*", f"--gtest_output=json:{report}"]
        status = subprocess.run(command, env=os.environ | {"FLUX2_PARITY_DATA": str(folder)}, check=False).returncode
        for suite in json.loads(report.read_text())["testsuites"]:
            for test in suite["testsuite"]:
                for name in CASES:
                    if name in test:
                        print(f"{name:18} {test[name]}")
    return status


if __name__ == "__main__":
    sys.exit(main())
