"""Editing on random models: references and kept references against diffusers' klein pipelines."""

import dataclasses
import random

import numpy as np
from diffusers import Flux2KleinKVPipeline
from PIL import Image

import reference
import small_models
from small_models import Geometry

PROMPT = "put the red fox of image 2 into image 1"
TOLERANCE = 1e-3


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


def run(report, program, scratch):
    for seed in range(10):
        for name, kept in (("references", False), ("kept-references", True)):
            area = f"edit {name} {seed}"
            if report.wants(area):
                with report.area(area):
                    one = random_run(name, seed, distilled=kept or seed % 3 != 1)
                    check_references(report, program, one, scratch, kept)
