"""Training of image-prompt adapters against a PyTorch loop, in both forms: the adapter after several steps."""

import json

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import CLIPImageProcessor

import image_prompts
import small_models
import training
from small_models import Geometry

STEPS = 20
velocity = image_prompts.velocity.__wrapped__  # with gradients


def write_dataset(folder):
    """Images of the size of their bucket, so that nothing is scaled before CLIP's own preparation."""
    generator = np.random.default_rng(8)
    images = folder / "images"
    images.mkdir(parents=True)
    for i, caption in enumerate(training.CAPTIONS):
        Image.fromarray(generator.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(images / f"item{i}.png")
        (images / f"item{i}.txt").write_text(caption + "\n")
    config = {
        "general": {"resolution": [64, 64], "caption_extension": ".txt", "batch_size": training.BATCH},
        "datasets": [{"image_directory": str(images), "cache_directory": str(folder / "cache")}],
    }
    (folder / "data.json").write_text(json.dumps(config))
    return folder / "data.json"


@torch.no_grad()
def features_of(tower, folder):
    vectors = []
    for i in range(len(training.CAPTIONS)):
        pixels = CLIPImageProcessor()(Image.open(folder / "images" / f"item{i}.png"), return_tensors="pt")["pixel_values"]
        vectors.append(tower.vision_model(pixels).pooler_output[0])
    return torch.stack(vectors)


def check_form(report, program, scratch, decoupled):
    name = "decoupled" if decoupled else "tokens"
    geometry = Geometry(f"train-ip-{name}", heads=2, double_blocks=2, single_blocks=1, text_length=24, distilled=False)
    run = image_prompts.Run(geometry, decoupled, [], 61)
    folder = small_models.write_model(geometry, scratch / geometry.name, seed=61)
    tower = image_prompts.write_encoder(folder / "clip", 61)
    weights = image_prompts.write_adapter(run, folder / "start.safetensors")
    data = write_dataset(scratch / f"{geometry.name}-data")
    out = scratch / f"{geometry.name}-out"
    program.run(
        "train", "-m", folder, "--dataset_config", data, "--kind", "image_prompt", "--image_prompt_encoder", folder / "clip",
        "--image_prompt_form", name, "--image_prompt_dropout", 0, "--network_weights", folder / "start.safetensors",
        "--learning_rate", 1e-3, "--timestep_sampling", "flux2_shift", "--max_train_steps", STEPS, "--save_every_n_steps", 1,
        "--seed", training.SEED, "--output_dir", out, "--output_name", "x", "--profile", "exact", "--device", "cpu", "--quiet",
    )  # fmt: skip

    # The projector is trained on standardised vectors.
    model = small_models.load_transformer(folder).requires_grad_(False)
    vectors = features_of(tower, data.parent)
    mean, deviation = vectors.mean(0), vectors.std(0, correction=0)
    deviation = deviation.clamp_min(0.05 * deviation.mean())
    named = {k: v.clone() for k, v in weights.items()}
    named["proj.bias"] = weights["proj.bias"] + weights["proj.weight"] @ mean
    named["proj.weight"] = weights["proj.weight"] * deviation
    for p in named.values():
        p.requires_grad_(True)
    hidden = weights["norm.weight"].numel()

    def objective(x, text, t, target, vector):
        projected = ((vector - mean) / deviation) @ named["proj.weight"].T + named["proj.bias"]
        tokens = projected.reshape(1, run.tokens, hidden)
        tokens = torch.nn.functional.layer_norm(tokens, (hidden,), named["norm.weight"], named["norm.bias"], 1e-5)
        with image_prompts.prompted(model, run, named, [(tokens, 1.0)], x[0].numel()):
            v = velocity(model, x, text, t, [], 0 if decoupled else run.tokens, run.tokens)
        return ((v - target) ** 2).mean()

    items = [(x0, text, vectors[i]) for i, (x0, text, _) in enumerate(training.read_caches(data.parent / "cache"))]
    theirs, losses = training.train(model, named, items, STEPS, objective=objective)
    for step in (1, STEPS // 2, STEPS):
        ours = load_file(out / ("x.safetensors" if step == STEPS else f"x-step{step:08d}.safetensors"))
        saved = dict(theirs[step - 1])
        saved["proj.weight"] = saved["proj.weight"] / deviation
        saved["proj.bias"] = saved["proj.bias"] - saved["proj.weight"] @ mean
        saved = {k if k.startswith("double_blocks") else "image_proj." + k: v for k, v in saved.items()}
        report.equal(f"{name}: tensors after step {step}", sorted(ours), sorted(saved))
        flat = [torch.cat([side[k].flatten() for k in sorted(saved)]) for side in (ours, saved)]
        report.compare(f"{name}: adapter after step {step}", flat[0], flat[1], 1e-5)
    logged = [json.loads(line) for line in (out / "x.jsonl").read_text().splitlines()]
    logged = torch.tensor([e["loss"] for e in logged if e["event"] == "step"])
    report.compare(f"{name}: losses", logged, torch.tensor(losses), 1e-5)
    with safe_open(out / "x.safetensors", "pt") as file:
        about = json.loads(file.metadata()["flux2.image_prompt"])
    report.equal(f"{name}: metadata", (about["form"], about["feature"], about["tokens"]), (name, "pooled", run.tokens))


def run(report, program, scratch):
    if not report.wants("training of image prompts"):
        return
    with report.area("training of image prompts"):
        for decoupled in (False, True):
            check_form(report, program, scratch, decoupled)
