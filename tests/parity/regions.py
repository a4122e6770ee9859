"""Prompts of regions on random models: every step against diffusers' transformer with a dense mask over all pairs of tokens."""

import dataclasses
import random

import numpy as np
import torch
from diffusers import Flux2KleinPipeline
from PIL import Image, ImageDraw

import editing
import reference
import small_models
from small_models import Geometry

OWN = "a wide field"
TOLERANCE = 1e-5


@dataclasses.dataclass
class Region:
    prompt: str
    box: tuple | None = None  # x, y, width, height; None: a mask
    references: list = dataclasses.field(default_factory=list)  # of (width, height)


@dataclasses.dataclass
class Run:
    geometry: Geometry
    width: int
    height: int
    regions: list
    seed: int
    references: list = dataclasses.field(default_factory=list)
    guidance: float = 1.0


def runs():
    quadrants = [Region(p, (x, y, 48, 48)) for p, x, y in (("fox", 0, 0), ("sea", 48, 0), ("red", 0, 48), ("old", 48, 48))]
    return [
        Run(Geometry("box", heads=2, double_blocks=2, single_blocks=2, text_length=24), 96, 80, [Region("fox", (16, 16, 48, 40))], 31),
        Run(Geometry("quadrants", heads=1, single_blocks=3, text_length=24), 96, 96, quadrants, 32),
        Run(Geometry("overlap", heads=2, double_blocks=2, text_length=40), 112, 64,
            [Region("fox", (0, 0, 64, 64)), Region("the castle", (40, 0, 50, 40)), Region("gulls", None)], 33),
        Run(Geometry("no-double", heads=2, double_blocks=0, single_blocks=2, text_length=24), 64, 64, [Region("fox", None)], 34),
        Run(Geometry("no-single", heads=1, double_blocks=2, single_blocks=0, text_length=24), 64, 80, [Region("fox", None)], 35),
        Run(Geometry("base-regions", heads=2, distilled=False, text_length=24), 80, 64,
            [Region("fox", (0, 0, 40, 64)), Region("sea", (48, 0, 32, 64))], 36, guidance=3.0),
        Run(Geometry("references", heads=2, single_blocks=2, text_length=24), 64, 64,
            [Region("fox", (0, 0, 32, 64), [(64, 80)]), Region("sea", (32, 0, 20, 64), [(64, 64), (80, 64)])], 37, [(80, 64)]),
        Run(Geometry("base-references", heads=1, distilled=False, text_length=24), 64, 64,
            [Region("fox", (0, 0, 32, 64), [(64, 64)]), Region("sea", (32, 0, 32, 64))], 38, guidance=2.0),
    ]  # fmt: skip


def mask_of(run, region, number, folder):
    """Pixels of the region, and the options that describe it."""
    if region.box:
        x, y, w, h = region.box
        pixels = np.zeros((run.height, run.width), dtype=bool)
        pixels[y : y + h, x : x + w] = True
        return pixels, ["--region", f"{region.prompt}@{x},{y},{w},{h}"]
    rng = random.Random(run.seed)
    mask = Image.new("L", (run.width, run.height))
    ImageDraw.Draw(mask).ellipse([rng.randint(0, 20), 0, run.width - 12, run.height - 8], fill=255)
    file = folder / f"mask-{number}.png"
    mask.save(file)
    return np.asarray(mask) >= 128, ["--region", region.prompt, "--region-mask", file]


def tokens_inside(pixels):
    """A token belongs to the region that contains the middle of its 16 × 16 pixels."""
    return torch.from_numpy(pixels[8::16, 8::16].copy()).flatten()


def visible(text_length, inside, references):
    """The dense matrix. Texts: the request's own one, then those of the regions. inside [K, I]; references: (region or -1, tokens)."""
    count, image = inside.shape
    kinds = [("text", k - 1) for k in range(count + 1) for _ in range(text_length)]
    kinds += [("image", i) for i in range(image)]
    kinds += [("reference", region) for region, tokens in references for _ in range(tokens)]
    background = ~inside.any(0)

    def sees(a, b):
        if a[0] > b[0]:
            a, b = b, a
        if "reference" in (a[0], b[0]) and -1 in (region for kind, region in (a, b) if kind == "reference"):
            return True
        match a[0], b[0]:
            case "text", "text":
                return a[1] == b[1]
            case "image", "image":
                i, j = a[1], b[1]
                return bool(background[i] or background[j] or (inside[:, i] & inside[:, j]).any())
            case "image", "text":
                return bool(background[a[1]] if b[1] < 0 else inside[b[1], a[1]])
            case "image", "reference":
                return bool(inside[b[1], a[1]])
            case "reference", "reference" | "text":
                return a[1] == b[1]
        raise ValueError(a, b)

    kinds_seen = {}
    matrix = torch.zeros(len(kinds), len(kinds), dtype=torch.bool)
    for i, a in enumerate(kinds):
        if a not in kinds_seen:
            kinds_seen[a] = torch.tensor([sees(a, b) for b in kinds])
        matrix[i] = kinds_seen[a]
    return matrix


@torch.no_grad()
def velocity(transformer, latents, text, sigma, references, matrix, guidance=None):
    """As reference.velocity, with reference latents at given times behind the image, and a mask."""
    x = latents[None]
    hidden, ids = [Flux2KleinPipeline._pack_latents(x)], [Flux2KleinPipeline._prepare_latent_ids(x)]
    for time, picture in references:
        hidden.append(Flux2KleinPipeline._pack_latents(picture[None]))
        places = Flux2KleinPipeline._prepare_latent_ids(picture[None]).clone()
        places[..., 0] = time
        ids.append(places)
    v = transformer(
        hidden_states=torch.cat(hidden, 1),
        encoder_hidden_states=text[None],
        timestep=sigma.reshape(1),
        guidance=guidance,
        img_ids=torch.cat(ids, 1),
        txt_ids=Flux2KleinPipeline._prepare_text_ids(text[None]),
        joint_attention_kwargs={"attention_mask": matrix},
        return_dict=False,
    )[0]
    return v[0, : latents[0].numel()].T.reshape(latents.shape)


def check_run(report, program, run, scratch):
    name, geometry = f"regions {run.geometry.name}", run.geometry
    folder = small_models.write_model(geometry, scratch / f"regions-{geometry.name}", seed=run.seed)
    options = ["--prompt", OWN, "--model", folder, "--size", f"{run.width}x{run.height}", "--steps", 2, "--seed", run.seed]
    options += ["--ref-prep", "diffusers"]
    if not geometry.distilled:
        options += ["--guidance", run.guidance]
    inside, owners, pictures = [], [], 0
    for size in run.references:
        options += ["-i", editing.random_picture(*size, run.seed, folder / f"all-{pictures}.png")]
        owners.append(-1)
        pictures += 1
    for number, region in enumerate(run.regions):
        pixels, words = mask_of(run, region, number, folder)
        options += words
        inside.append(tokens_inside(pixels))
        for size in region.references:
            file = editing.random_picture(*size, run.seed + pictures, folder / f"own-{pictures}.png")
            options += ["--region-reference", f"{number + 1}:{file}"]
            owners.append(number)
            pictures += 1
    inside = torch.stack(inside)
    trace = program.generate(*options)

    pipeline = small_models.load_pipeline(folder)
    states = [reference.text_states(pipeline, geometry, p)[2] for p in [OWN] + [r.prompt for r in run.regions]]
    for number, _ in enumerate(run.regions):
        report.compare(f"{name}: text of region {number + 1}", trace[f"regions.{number}.text.embeddings"], states[number + 1])
    text = torch.cat(states)
    # A region's references count on from those of the whole image.
    references, used = [], {}
    for k, owner in enumerate(owners):
        used[owner] = used.get(owner, 0) + 1
        place = used[owner] + (0 if owner < 0 else used.get(-1, 0))
        references.append((10 * place, trace[f"refs.{k}.latents"]))
    sizes = [(owner, latents[0].numel()) for owner, (_, latents) in zip(owners, references)]
    matrix = visible(geometry.text_length, inside, sizes)
    for k in range(len(trace["timesteps"]) - 1):
        sigma, latents = trace["timesteps"][k], trace[f"latents.{k}"]
        v = velocity(pipeline.transformer, latents, text, sigma, references, matrix)
        if not geometry.distilled:
            # The negative prompt sees everything, the image sees itself, references stay where they are.
            rows = geometry.text_length
            plain = torch.ones(rows + matrix.shape[0] - text.shape[0], rows + matrix.shape[0] - text.shape[0], dtype=torch.bool)
            plain[rows:, rows:] = matrix[text.shape[0] :, text.shape[0] :]
            image = inside.shape[1]
            plain[rows : rows + image, rows : rows + image] = True
            negative = velocity(pipeline.transformer, latents, trace["negative.embeddings"], sigma, references, plain)
            v = negative + run.guidance * (v - negative)
        report.compare(f"{name}: velocity.{k}", trace[f"velocity.{k}"], v, TOLERANCE)


def run(report, program, scratch):
    for one in runs():
        area = f"regions {one.geometry.name}"
        if report.wants(area):
            with report.area(area):
                check_run(report, program, one, scratch)
