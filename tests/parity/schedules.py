"""Sigma lists against FlowMatchEulerDiscreteScheduler as the klein pipeline drives it, without running a model."""

import torch

import reference

# The rule changes at 4300 tokens: 1040x1040 has 4225, 1056x1056 has 4356.
SIZES = ["64x64", "512x512", "768x1360", "1024x1024", "1040x1040", "1056x1056", "1056x1072", "2048x1024"]
STEPS = [1, 2, 3, 4, 8, 20, 28, 50, 200]


def run(report, program, scratch):
    if not report.wants("schedules"):
        return
    with report.area("schedules"):
        folder = scratch / "schedules"
        program.run("models", "synth", "--out", folder)
        for size in SIZES:
            width, height = map(int, size.split("x"))
            for steps in STEPS:
                ours = torch.tensor(program.sigmas("--model", folder, "--size", size, "--steps", steps))
                theirs = reference.schedule(width // 16 * (height // 16), steps)
                difference = (ours - theirs).abs().max().item() if ours.shape == theirs.shape else float("inf")
                report.check(f"schedule {size}, {steps} steps", difference <= 2e-7, f"{difference:.1e} apart")
