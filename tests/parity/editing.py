"""Editing on random models: references, kept references, inpainting and strength against diffusers' klein pipelines."""

import dataclasses
import random

import numpy as np
import torch
from diffusers import Flux2KleinInpaintPipeline, Flux2KleinKVPipeline
from PIL import Image, ImageDraw

import reference
import small_models
from small_models import Geometry

PROMPT = "put the red fox of image 2 into image 1"
TOLERANCE = 1e-4


@dataclasses.dataclass
class Run:
    geometry: Geometry
    width: int
    height: int
    steps: int
    seed: int
    guidance: float
    references: list  # of (width, height)

    def options(self, folder):
        options = ["--prompt", PROMPT, "--model", folder, "--size", f"{self.width}x{self.height}"]
        options += ["--steps", self.steps, "--seed", self.seed, "--ref-prep", "diffusers"]
        return options if self.geometry.distilled else options + ["--guidance", self.guidance]


def random_run(name, seed, distilled):
    rng = random.Random(seed)
    geometry = Geometry(
        f"{name}-{seed}",
        heads=rng.choice([1, 2]),
        double_blocks=rng.choice([1, 1, 2]),
        single_blocks=rng.choice([1, 2]),
        text_length=rng.choice([24, 56, 112]),
        distilled=distilled,
    )
    sizes = [(rng.randint(64, 180), rng.randint(64, 180)) for _ in range(1 + seed % 3)]
    if seed % 5 == 0:
        sizes[0] = (1210, 1003)  # above the limit of a megapixel
    width, height = 16 * rng.randint(4, 8), 16 * rng.randint(4, 8)
    return Run(geometry, width, height, rng.choice([2, 3, 4]), seed, rng.choice([2.0, 4.0]), sizes)


def random_picture(width, height, seed, path):
    """A coarse pattern and some grain, so that resampling and cropping show."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 9, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)
    pixels = np.asarray(coarse).astype(int) + rng.integers(-20, 21, (height, width, 3))
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return path


def pictures_of(run, folder):
    return [random_picture(w, h, 10 * run.seed + k, folder / f"picture-{k}.png") for k, (w, h) in enumerate(run.references)]


def compare_states(report, name, trace, states):
    report.equal(f"{name}: steps", len(trace["timesteps"]) - 1, len(states))
    for k, state in enumerate(states):
        report.compare(f"{name}: latents.{k + 1}", trace[f"latents.{k + 1}"], state, TOLERANCE)


def check_references(report, program, run, scratch, kept):
    name = run.geometry.name
    folder = small_models.write_model(run.geometry, scratch / name, seed=run.seed)
    files = pictures_of(run, folder)
    options = run.options(folder) + [word for file in files for word in ("-i", file)]
    trace = program.generate(*options, *(["--ref-kv", "on"] if kept else []))
    pipeline = small_models.load_pipeline(folder)
    for k, file in enumerate(files):
        latents = reference.encode(pipeline.vae, trace[f"refs.{k}.image"])
        report.compare(f"{name}: refs.{k}.latents", trace[f"refs.{k}.latents"], latents)
    arguments = {"guidance_scale": run.guidance}
    if kept:
        pipeline, arguments = Flux2KleinKVPipeline(**pipeline.components), {}
        pipeline.set_progress_bar_config(disable=True)
    states = reference.states_of(
        pipeline,
        run.geometry,
        trace["noise"].shape,
        prompt=PROMPT,
        image=[Image.open(file) for file in files],
        width=run.width,
        height=run.height,
        num_inference_steps=run.steps,
        latents=trace["noise"][None].clone(),
        **arguments,
    )
    compare_states(report, name, trace, states)


def random_mask(width, height, rng, path):
    """An ellipse of some grey, a bright box: above and below the threshold."""
    mask = Image.new("L", (width, height))
    draw = ImageDraw.Draw(mask)
    draw.ellipse([rng.uniform(0, 0.3) * width, 0, rng.uniform(0.5, 1) * width, height], fill=rng.choice([100, 140, 255]))
    draw.rectangle([0, 0.6 * height, 0.5 * width, height], fill=255)
    mask.save(path)
    return path


def inpaint_states(run, folder, canvas, mask, references, strength):
    components = small_models.load_pipeline(folder).components
    pipeline = Flux2KleinInpaintPipeline(**components, is_distilled=run.geometry.distilled)
    pipeline.set_progress_bar_config(disable=True)
    picture = Image.open(canvas)
    return reference.states_of(
        pipeline,
        run.geometry,
        (128, picture.height // 16, picture.width // 16),
        prompt=PROMPT,
        image=picture,
        mask_image=Image.open(mask),
        image_reference=Image.open(references[0]) if references else None,
        strength=strength,
        num_inference_steps=run.steps,
        guidance_scale=run.guidance,
        generator=torch.Generator().manual_seed(run.seed),
    )


def check_inpainting(report, program, run, scratch):
    name, rng = run.geometry.name, random.Random(run.seed)
    folder = small_models.write_model(run.geometry, scratch / name, seed=run.seed)
    # Resized along one axis: which of two passes comes first depends on Pillow's version, and rounding shows it.
    width, height = rng.randint(64, 160), rng.randint(64, 160)
    width, height = (width // 16 * 16, height) if run.seed % 2 else (width, height // 16 * 16)
    canvas = random_picture(width, height, 1000 + run.seed, folder / "canvas.png")
    mask = random_mask(width, height, rng, folder / "mask.png")
    references = pictures_of(run, folder)[: run.seed % 2]
    strength = rng.choice([0.4, 0.6, 0.8, 1.0])
    options = run.options(folder) + ["-i", canvas, "--mask", mask, "--inpaint-mode", "diffusers", "--strength", strength]
    options += [word for file in references for word in ("-i", file)]
    trace = program.generate(*options, command="inpaint")
    compare_states(report, name, trace, inpaint_states(run, folder, canvas, mask, references, strength))


def check_strength(report, program, run, scratch):
    """A run that begins with its first reference is an inpainting whose mask is full."""
    name = run.geometry.name
    folder = small_models.write_model(run.geometry, scratch / name, seed=run.seed)
    canvas = random_picture(run.width, run.height, 2000 + run.seed, folder / "canvas.png")
    Image.new("L", (run.width, run.height), 255).save(folder / "full.png")
    strength = 0.3 + 0.06 * run.seed
    trace = program.generate(*run.options(folder), "-i", canvas, "--strength", strength)
    compare_states(report, name, trace, inpaint_states(run, folder, canvas, folder / "full.png", [], strength))


def run(report, program, scratch):
    for seed in range(10):
        for name, kept in (("references", False), ("kept-references", True)):
            area = f"edit {name} {seed}"
            if report.wants(area):
                with report.area(area):
                    one = random_run(name, seed, distilled=kept or seed % 3 != 1)
                    check_references(report, program, one, scratch, kept)
        for name, check in (("inpaint", check_inpainting), ("strength", check_strength)):
            area = f"edit {name} {seed}"
            if report.wants(area):
                with report.area(area):
                    one = random_run(name, seed, distilled=seed % 3 != 1)
                    check(report, program, one, scratch)
