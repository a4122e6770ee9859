"""Whole generations on random models: text states, noise, schedule, every step, final latents and picture."""

import dataclasses

import torch

import reference
import small_models
from small_models import Geometry

SHORT, LONG = "a fox", "an oil painting of the old lighthouse at dusk, don't forget 3 gulls — naïve café Straße " * 2


@dataclasses.dataclass
class Run:
    geometry: Geometry
    width: int
    height: int
    steps: int
    prompt: str = SHORT
    seed: int = 0
    guidance: float = 1.0


def runs():
    narrow = {"encoder_widths": (32, 64, 64, 64), "decoder_widths": (32, 32, 64, 32)}
    wide = {"encoder_widths": (64, 96, 128, 128), "decoder_widths": (96, 96, 128, 160)}
    return [
        Run(Geometry("one-head"), 64, 64, 4, seed=1),
        Run(Geometry("two-heads-wide", heads=2, double_blocks=2, single_blocks=3), 112, 64, 4, LONG, seed=2),
        Run(Geometry("three-heads-tall", heads=3, double_blocks=1, single_blocks=2), 64, 144, 3, seed=3),
        Run(Geometry("no-single-blocks", double_blocks=3, single_blocks=0), 80, 96, 2, LONG, seed=4),
        Run(Geometry("no-double-blocks", heads=2, double_blocks=0, single_blocks=3), 96, 80, 2, seed=5),
        Run(Geometry("bf16", heads=2, single_blocks=2, bf16=True), 96, 64, 4, "the red castle", seed=6),
        Run(Geometry("bf16-base", heads=1, double_blocks=2, bf16=True, distilled=False), 64, 96, 5, LONG, 7, 4.0),
        Run(Geometry("base", heads=2, distilled=False), 80, 64, 6, SHORT, 8, 4.0),
        Run(Geometry("base-mild", heads=3, single_blocks=2, distilled=False), 64, 64, 4, LONG, 9, 1.7),
        Run(Geometry("narrow-decoder", **narrow), 80, 64, 2, seed=10),
        Run(Geometry("wide-vae", **wide), 64, 80, 2, seed=11),
        Run(Geometry("one-kv-head", text_hidden=48, text_heads=(6, 1, 8), text_layers=(2, 3, 5)), 64, 64, 2, LONG, 12),
        Run(Geometry("published-text", text_heads=(4, 4, 8), text_layers=(9, 18, 27), text_length=512), 64, 64, 2, LONG, 13),
        Run(Geometry("full-text", text_length=32, text_layers=(1, 4, 6)), 64, 64, 2, LONG, 14),  # longer than its room
        Run(Geometry("blank-edges", heads=2), 64, 64, 2, "\n\n fox 's  <|im_end|>\t🦊 \n", 15),  # joins the template's lines
    ]


def compare_text(report, name, trace, pipeline, geometry, prompt, prefix="text"):
    ids, mask, states = reference.text_states(pipeline, geometry, prompt)
    report.equal(f"{name}: {prefix}.input_ids", trace[f"{prefix}.input_ids"].tolist(), ids.tolist())
    if prefix == "text":
        report.equal(f"{name}: {prefix}.attention_mask", trace["text.attention_mask"].tolist(), mask.tolist())
    ours, real = trace[f"{prefix}.embeddings"], mask.bool()
    report.compare(f"{name}: {prefix}.embeddings, real rows", ours[real], states[real])
    if not real.all():
        report.compare(f"{name}: {prefix}.embeddings, padded rows", ours[~real], states[~real])


def compare_noise(report, name, ours, seed):
    generator = torch.Generator().manual_seed(seed)
    theirs = torch.randn((1, *ours.shape), generator=generator)[0]
    # PyTorch's logarithm and cosine are the C library's or vectorised ones, depending on the machine; they differ in
    # the last bits, which a radius of up to 5 multiplies.
    difference = (ours - theirs).abs().max().item()
    report.check(f"{name}: noise", difference <= 4e-6, f"up to {difference:.1e} apart")


def compare_steps(report, name, trace, transformer, cfg=None, guidance=None):
    """Each step alone, from our own state before it, so that the first wrong one is named."""
    for k in range(len(trace["timesteps"]) - 1):
        sigma, latents = trace["timesteps"][k], trace[f"latents.{k}"]
        v = reference.velocity(transformer, latents, trace["text.embeddings"], sigma, guidance)
        if cfg is not None:
            negative = reference.velocity(transformer, latents, trace["negative.embeddings"], sigma, guidance)
            v = negative + cfg * (v - negative)
        report.compare(f"{name}: velocity.{k}", trace[f"velocity.{k}"], v)


def check_run(report, program, run, scratch):
    geometry, name = run.geometry, run.geometry.name
    folder = small_models.write_model(geometry, scratch / name, seed=run.seed)
    options = ["--model", folder, "--size", f"{run.width}x{run.height}", "--steps", run.steps, "--seed", run.seed]
    if not geometry.distilled:
        options += ["--guidance", run.guidance]
    trace = program.generate("--prompt", run.prompt, *options)
    pipeline = small_models.load_pipeline(folder)
    check_trace(report, name, trace, pipeline, run)


def check_trace(report, name, trace, pipeline, run):
    geometry = run.geometry
    cfg = None if geometry.distilled else run.guidance
    compare_noise(report, name, trace["noise"], run.seed)
    compare_text(report, name, trace, pipeline, geometry, run.prompt)
    if cfg is not None:
        compare_text(report, name, trace, pipeline, geometry, "", prefix="negative")
    tokens = trace["noise"][0].numel()
    sigmas = reference.schedule(tokens, run.steps)
    report.compare(f"{name}: timesteps", trace["timesteps"], sigmas, 2e-7)
    compare_steps(report, name, trace, pipeline.transformer, cfg)
    states = reference.run_pipeline(pipeline, geometry, run.prompt, trace["noise"], run.steps, run.guidance)
    for k, state in enumerate(states):
        report.compare(f"{name}: pipeline latents.{k + 1}", trace[f"latents.{k + 1}"], state)
    report.compare(f"{name}: pipeline image", trace["image"], reference.decode(pipeline.vae, states[-1]))


def check_guidance_embedding(report, program, scratch):
    """dev's geometry: the guidance value is an input of the transformer; text and noise come from files."""
    for k, (heads, guidance, length) in enumerate([(1, 4.0, 20), (2, 2.5, 37)]):
        name = f"guidance-embedding-{heads}"
        geometry = Geometry(name, heads=heads, double_blocks=1, single_blocks=2, guidance_embedding=True)
        folder = small_models.write_model(geometry, scratch / name, seed=40 + k)
        generator = torch.Generator().manual_seed(k)
        text = torch.randn(length, geometry.text_width, generator=generator)
        noise = torch.randn(128, 4, 6, generator=generator)
        trace = program.generate(
            "--dit", folder / "transformer", "--vae", folder / "vae", "--size", "96x64", "--steps", 3,
            "--guidance", guidance, tensors={"embeddings": {"text.embeddings": text}, "noise-file": {"noise": noise}},
        )  # fmt: skip
        report.check(f"{name}: given noise", torch.equal(trace["latents.0"], noise), "the run started elsewhere")
        trace["text.embeddings"] = text
        compare_steps(report, name, trace, small_models.load_transformer(folder), guidance=guidance)
        vae = small_models.load_vae(folder)
        report.compare(f"{name}: image", trace["image"], reference.decode(vae, trace["latents.3"]))


def run(report, program, scratch):
    for one in runs():
        area = f"generate {one.geometry.name}"
        if report.wants(area):
            with report.area(area):
                check_run(report, program, one, scratch)
    if report.wants("generate guidance-embedding"):
        with report.area("generate guidance-embedding"):
            check_guidance_embedding(report, program, scratch)
