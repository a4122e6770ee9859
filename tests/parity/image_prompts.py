"""Images as prompts on random models: CLIP of transformers, the adapter in plain PyTorch, and diffusers' transformer with hooks."""

import contextlib
import dataclasses
import json
import math

import torch
from diffusers import Flux2KleinPipeline
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModelWithProjection

import editing
import reference
import small_models
from small_models import Geometry

PROMPT = "a wide field"
STEPS = 4
TOLERANCE = 1e-5


@dataclasses.dataclass
class Prompt:
    size: tuple
    strength: float = 1.0
    begin: float = 0.0
    end: float = 1.0

    def counts(self, step):
        return math.floor(self.begin * STEPS) <= step < math.ceil(self.end * STEPS)


@dataclasses.dataclass
class Run:
    geometry: Geometry
    decoupled: bool
    prompts: list
    seed: int
    feature: str = "pooled"
    tokens: int = 4
    references: list = dataclasses.field(default_factory=list)
    guidance: float = 1.0
    prefix: str = "image_proj."


def runs():
    return [
        Run(Geometry("ip-tokens", heads=2, double_blocks=2, single_blocks=2, text_length=24), False, [Prompt((300, 224))], 41),
        Run(Geometry("ip-decoupled", heads=2, double_blocks=3, single_blocks=1, text_length=24), True, [Prompt((224, 500), 0.7)], 42),
        Run(Geometry("ip-two", heads=1, double_blocks=2, text_length=24), True, [Prompt((64, 64), 1.3, 0, 0.5), Prompt((230, 225), 0.4, 0.3, 1)], 43,
            feature="projected", references=[(80, 64)]),
        Run(Geometry("ip-two-tokens", heads=2, single_blocks=2, text_length=24), False, [Prompt((224, 224), 0.5, 0.25, 0.75), Prompt((99, 301), 2)], 44,
            tokens=3, references=[(64, 64), (80, 64)], prefix="image_proj_model."),
        Run(Geometry("ip-base", heads=2, distilled=False, text_length=24), True, [Prompt((224, 260))], 45, guidance=3.0),
        Run(Geometry("ip-base-tokens", heads=1, distilled=False, text_length=24), False, [Prompt((260, 224), 1, 0, 0.5)], 46, guidance=2.0),
    ]  # fmt: skip


def write_encoder(folder, seed):
    config = CLIPVisionConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, image_size=224, patch_size=32, projection_dim=48
    )
    tower = CLIPVisionModelWithProjection(config).eval()
    small_models.randomise(tower, torch.Generator().manual_seed(seed))
    tower.save_pretrained(folder)
    CLIPImageProcessor().save_pretrained(folder)
    return tower


def write_adapter(run, file):
    """A file with random values, and the same by name without the prefix."""
    g, hidden = run.geometry, 128 * run.geometry.heads
    width = 64 if run.feature == "pooled" else 48
    generator = torch.Generator().manual_seed(run.seed)
    noise = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
    values = {
        "proj.weight": noise(run.tokens * hidden, width) / math.sqrt(width),
        "proj.bias": 0.1 * noise(run.tokens * hidden),
        "norm.weight": 1 + 0.2 * noise(hidden),
        "norm.bias": 0.1 * noise(hidden),
    }
    blocks = {}
    if run.decoupled:
        for n in range(g.double_blocks):
            for which in "kv":
                blocks[f"double_blocks.{n}.ip_adapter.{which}_proj.weight"] = noise(hidden, hidden) / math.sqrt(hidden)
    form = "decoupled" if run.decoupled else "tokens"
    about = {"encoder": "clip-tiny", "feature": run.feature, "tokens": run.tokens, "form": form}
    save_file({run.prefix + k: v for k, v in values.items()} | blocks, file, {"flux2.image_prompt": json.dumps(about)})
    return values | blocks


@torch.no_grad()
def prompt_tokens(run, tower, weights, file):
    pixels = CLIPImageProcessor()(Image.open(file).convert("RGB"), return_tensors="pt")["pixel_values"]
    if run.feature == "pooled":
        vector = tower.vision_model(pixels).pooler_output
    else:
        vector = tower(pixels).image_embeds
    hidden = weights["norm.weight"].numel()
    tokens = (vector @ weights["proj.weight"].T + weights["proj.bias"]).reshape(1, run.tokens, hidden)
    return torch.nn.functional.layer_norm(tokens, (hidden,), weights["norm.weight"], weights["norm.bias"], 1e-5)


@contextlib.contextmanager
def prompted(transformer, run, weights, prompts, targets):
    """The transformer with these (tokens, strength) until the end of the block."""
    hooks = []
    if not run.decoupled and prompts:
        rows = torch.cat([strength * tokens for tokens, strength in prompts], 1)
        hooks.append(transformer.x_embedder.register_forward_hook(lambda module, given, y: torch.cat([y, rows], 1)))
    for n, block in enumerate(transformer.transformer_blocks if run.decoupled and prompts else []):
        kept = {}

        def keep(module, given, y, kept=kept):
            kept["q"] = y

        def add(module, given, out, n=n, kept=kept):
            text, image = out
            q = kept["q"][:, :targets].transpose(1, 2)
            heads = q.shape[1]
            for tokens, strength in prompts:
                k, v = (
                    (tokens @ weights[f"double_blocks.{n}.ip_adapter.{which}_proj.weight"].T).unflatten(-1, (heads, -1)).transpose(1, 2)
                    for which in "kv"
                )
                seen = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(128), -1) @ v
                image = image.clone()
                image[:, :targets] += strength * seen.transpose(1, 2).flatten(2)
            return text, image

        hooks += [block.attn.norm_q.register_forward_hook(keep), block.register_forward_hook(add)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def velocity(transformer, latents, text, sigma, references, prompt_rows=0, tokens=1):
    x = latents[None]
    hidden, ids = [Flux2KleinPipeline._pack_latents(x)], [Flux2KleinPipeline._prepare_latent_ids(x)]
    for number, picture in enumerate(references):
        hidden.append(Flux2KleinPipeline._pack_latents(picture[None]))
        places = Flux2KleinPipeline._prepare_latent_ids(picture[None]).clone()
        places[..., 0] = 10 * (number + 1)
        ids.append(places)
    if prompt_rows:
        places = torch.zeros(1, prompt_rows, 4, dtype=ids[0].dtype)
        for k in range(prompt_rows):
            places[0, k, 0] = 10 * (len(references) + 1 + k // tokens)
            places[0, k, 2] = k % tokens
        ids.append(places)
    v = transformer(
        hidden_states=torch.cat(hidden, 1),
        encoder_hidden_states=text[None],
        timestep=sigma.reshape(1),
        guidance=None,
        img_ids=torch.cat(ids, 1),
        txt_ids=Flux2KleinPipeline._prepare_text_ids(text[None]),
        return_dict=False,
    )[0]
    return v[0, : latents[0].numel()].T.reshape(latents.shape)


def check_run(report, program, run, scratch):
    name, geometry = f"image prompts {run.geometry.name}", run.geometry
    folder = small_models.write_model(geometry, scratch / geometry.name, seed=run.seed)
    tower = write_encoder(folder / "clip", run.seed)
    weights = write_adapter(run, folder / "image-prompt.safetensors")
    options = ["--prompt", PROMPT, "--model", folder, "--size", "80x64", "--steps", STEPS, "--seed", run.seed]
    options += ["--ref-prep", "diffusers", "--image-prompt-adapter", folder / "image-prompt.safetensors", "--image-prompt-encoder", folder / "clip"]
    if not geometry.distilled:
        options += ["--guidance", run.guidance]
    for k, size in enumerate(run.references):
        options += ["-i", editing.random_picture(*size, run.seed + k, folder / f"reference-{k}.png")]
    tokens = []
    for k, prompt in enumerate(run.prompts):
        file = editing.random_picture(*prompt.size, run.seed + 10 + k, folder / f"prompt-{k}.png")
        options += ["--image-prompt", f"{file}:{prompt.strength}:{prompt.begin}-{prompt.end}"]
        tokens.append(prompt_tokens(run, tower, weights, file))
    trace = program.generate(*options)

    pipeline = small_models.load_pipeline(folder)
    text = reference.text_states(pipeline, geometry, PROMPT)[2]
    references = [trace[f"refs.{k}.latents"] for k in range(len(run.references))]
    for k in range(STEPS):
        sigma, latents = trace["timesteps"][k], trace[f"latents.{k}"]
        now = [(t, p.strength) for t, p in zip(tokens, run.prompts) if p.counts(k)]
        rows = 0 if run.decoupled else run.tokens * len(now)
        with prompted(pipeline.transformer, run, weights, now, latents[0].numel()):
            v = velocity(pipeline.transformer, latents, text, sigma, references, rows, run.tokens)
        if not geometry.distilled:
            negative = velocity(pipeline.transformer, latents, trace["negative.embeddings"], sigma, references)
            v = negative + run.guidance * (v - negative)
        report.compare(f"{name}: velocity.{k}", trace[f"velocity.{k}"], v, TOLERANCE)


def run(report, program, scratch):
    for one in runs():
        area = f"image prompts {one.geometry.name}"
        if report.wants(area):
            with report.area(area):
                check_run(report, program, one, scratch)
