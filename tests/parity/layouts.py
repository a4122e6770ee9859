"""Models our program invents: diffusers reads them, and both layouts are the same model."""

import torch

import small_models
from generation import Run, check_trace
from small_models import Geometry

# blocks, dtype, base, size
MODELS = [("1,2", "f32", False, "96x64"), ("2,1", "bf16", False, "64x80"), ("1,1", "bf16", True, "80x64")]


def check_model(report, program, scratch, seed, blocks, dtype, base, size):
    name = f"synth-{blocks}-{dtype}"
    traces = {}
    options = ["--size", size, "--steps", 3, "--seed", seed] + (["--guidance", 4] if base else [])
    for layout in ("diffusers", "bfl"):
        folder = scratch / f"{name}-{layout}"
        program.run(
            "models", "synth", "--variant", "tiny", "--blocks", blocks, "--dtype", dtype, "--seed", seed,
            "--layout", layout, "--out", folder, *(["--base"] if base else []),
        )  # fmt: skip
        traces[layout] = program.generate("--prompt", "a castle in the sea", "--model", folder, *options)
    ours, other = traces["diffusers"], traces["bfl"]
    report.equal(f"{name}: tensors of both layouts", sorted(other), sorted(ours))
    different = [key for key in ours if not torch.equal(ours[key], other[key])]
    report.equal(f"{name}: tensors that differ between the layouts", different, [])

    pipeline = small_models.load_pipeline(scratch / f"{name}-diffusers")
    geometry = Geometry(name, text_layers=(2, 4, 6), text_length=64, distilled=not base)
    width, height = map(int, size.split("x"))
    check_trace(
        report, name, ours, pipeline, Run(geometry, width, height, 3, "a castle in the sea", seed, 4.0 if base else 1.0)
    )


def run(report, program, scratch):
    for seed, model in enumerate(MODELS):
        area = f"layouts {model[0]} {model[1]}"
        if report.wants(area):
            with report.area(area):
                check_model(report, program, scratch, seed, *model)
