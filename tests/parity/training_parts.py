"""Training of the autoencoder, and of the text encoder with the transformer, against PyTorch with diffusers' and transformers' own
models: the first gradients, the weights after ten steps, the losses."""

import json
import math

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

import small_models
from small_models import Geometry
from training import BATCH, CAPTIONS, SEED, batches_of_epoch, normals, normals_exact, velocity

ITEMS = len(CAPTIONS)


def write_dataset(folder):
    """Images of the size of their bucket, smooth enough that differences of neighbours matter."""
    generator = np.random.default_rng(7)
    images = folder / "images"
    images.mkdir(parents=True)
    for i, caption in enumerate(CAPTIONS):
        coarse = Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8))
        coarse.resize((64, 64), Image.Resampling.BICUBIC).save(images / f"item{i}.png")
        (images / f"item{i}.txt").write_text(caption + "\n")
    config = {
        "general": {"resolution": [64, 64], "caption_extension": ".txt", "batch_size": BATCH},
        "datasets": [{"image_directory": str(images), "cache_directory": str(folder / "cache")}],
    }
    (folder / "data.json").write_text(json.dumps(config))
    return folder / "data.json"


def adamw(parameters, rate):
    """Weight decay leaves out vectors, as for a whole transformer."""
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1]},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=rate,
        weight_decay=0.01,
    )  # fmt: skip


def run_steps(parameters, loss_of, steps, step):
    """`loss_of` an item and a sample index; `step` changes the weights. Returns the losses."""
    losses, epoch, sample = [], 0, 0
    while len(losses) < steps:
        for batch in batches_of_epoch(ITEMS, epoch):
            for p in parameters:
                p.grad = None
            total = 0.0
            for place in batch:
                with torch.enable_grad():
                    loss = loss_of(place, sample) / len(batch)
                loss.backward()
                total += loss.item()
                sample += 1
            step()
            losses.append(total)
            if len(losses) == steps:
                break
        epoch += 1
    return losses


def flat(tensors, names):
    return torch.cat([tensors[name].flatten().float() for name in names])


def logged_losses(out):
    events = [json.loads(line) for line in (out / "x.jsonl").read_text().splitlines()]
    return torch.tensor([e["loss"] for e in events if e["event"] == "step"])


# ---- The autoencoder.
def autoencoder_loss(vae, pixels, sample):
    posterior = vae.encode(pixels[None]).latent_dist
    mean, log_variance = posterior.mean, posterior.logvar
    _, channels, rows, columns = mean.shape
    noise = normals(SEED, 41, sample, mean.numel()).copy().reshape(rows, columns, channels)
    z = mean + torch.exp(0.5 * log_variance) * torch.from_numpy(noise).permute(2, 0, 1)[None]
    d = vae.decode(z).sample - pixels[None]
    edges = d.diff(dim=-1).abs().mean() + d.diff(dim=-2).abs().mean()
    kl = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).mean()
    return d.abs().mean() + 2 * (d**2).mean() + 0.5 * edges + 2e-5 * kl


def check_autoencoder(report, program, folder, scratch, data, steps=10):
    pixels = [
        torch.from_numpy(np.array(Image.open(data.parent / "images" / f"item{i}.png"))).permute(2, 0, 1) / 127.5 - 1
        for i in range(ITEMS)
    ]
    before = load_file(folder / "vae" / "diffusion_pytorch_model.safetensors")

    def ours(out, *arguments):
        program.run(
            "train", "-m", folder, "--dataset_config", data, "--train", "vae", "--seed", SEED, "--output_dir", out, "--output_name",
            "x", "--profile", "exact", "--device", "cpu", "--quiet", *arguments,
        )  # fmt: skip
        return load_file(out / "x.safetensors")

    def theirs(count, step_of):
        vae = small_models.load_vae(folder).requires_grad_(True)
        parameters = list(vae.parameters())
        losses = run_steps(parameters, lambda i, s: autoencoder_loss(vae, pixels[i], s), count, step_of(parameters))
        return vae, losses

    # One step of plain descent with rate 1 is the gradient.
    vae, _ = theirs(1, lambda parameters: lambda: None)
    gradients = {name: p.grad for name, p in vae.named_parameters()}
    names = sorted(gradients)
    after = ours(
        scratch / "out-vae-gradient", "--optimizer_type", "sgd", "--learning_rate", 1, "--max_train_steps", 1, "--max_grad_norm", 0
    )
    report.equal("autoencoder: tensors of the file", sorted(after), sorted(before))
    moved = {name: before[name].double() - after[name].double() for name in names}
    report.compare("autoencoder: gradient", flat(moved, names), flat(gradients, names), 1e-5)

    def clipped_adamw(parameters):
        optimiser = adamw(parameters, 1e-4)

        def step():
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()

        return step

    vae, losses = theirs(steps, clipped_adamw)
    out = scratch / "out-vae"
    after = ours(out, "--learning_rate", 1e-4, "--max_train_steps", steps)
    expected = {name: p.detach() for name, p in vae.named_parameters()}
    report.compare(f"autoencoder: weights after {steps} steps", flat(after, names), flat(expected, names), 1e-5)
    report.compare("autoencoder: losses", logged_losses(out), torch.tensor(losses), 1e-5)
    # The statistics of the latents of all images, which the file holds too.
    with torch.no_grad():
        latents = torch.cat([vae.encode(p[None]).latent_dist.mode() for p in pixels])
    b, c, h, w = latents.shape
    packed = latents.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(b, 4 * c, h // 2, w // 2)
    report.compare("autoencoder: mean of the latents", after["bn.running_mean"], packed.mean(dim=(0, 2, 3)), 1e-4)
    variance = packed.var(dim=(0, 2, 3), unbiased=False)
    report.compare("autoencoder: variance of the latents", after["bn.running_var"], variance, 1e-4)


# ---- The text encoder, with the transformer.
def text_states(encoder, geometry, ids, mask):
    hidden = encoder(input_ids=ids[None], attention_mask=mask[None], output_hidden_states=True, use_cache=False).hidden_states
    return torch.cat([hidden[layer][0] for layer in geometry.text_layers], dim=-1)


def read_latents(cache):
    """x0 of each item, in the order of the files' names."""
    files = sorted(p for p in cache.glob("*.safetensors") if not p.stem.endswith("_te"))
    return [next(v for k, v in load_file(f).items() if k.startswith("latents_")).float() for f in files]


def check_text_encoder(report, program, folder, scratch, data, geometry, steps=10):
    pipeline = small_models.load_pipeline(folder)
    tokens = []
    for caption in CAPTIONS:
        text = pipeline.tokenizer.apply_chat_template(
            [{"role": "user", "content": caption}], tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        t = pipeline.tokenizer(text, return_tensors="pt", padding="max_length", truncation=True, max_length=geometry.text_length)
        tokens.append((t["input_ids"][0], t["attention_mask"][0]))
    encoder, transformer = pipeline.text_encoder.requires_grad_(True), small_models.load_transformer(folder).requires_grad_(True)
    before = {name: p.detach().clone() for name, p in encoder.named_parameters()}
    # Layers behind the last state get no gradient and stay.
    last = max(geometry.text_layers)
    trained = {
        name: p for name, p in encoder.named_parameters()
        if "embed_tokens" in name or (".layers." in name and int(name.split(".layers.")[1].split(".")[0]) < last)
    }  # fmt: skip

    def ours_after(out, *arguments):
        program.run(
            "train", "-m", folder, "--dataset_config", data, "--train", "transformer+text_encoder", "--seed", SEED, "--output_dir", out,
            "--output_name", "x", "--profile", "exact", "--device", "cpu", "--quiet", "--timestep_sampling", "flux2_shift", *arguments,
        )  # fmt: skip
        return load_file(out / "x-text_encoder.safetensors")

    out = scratch / "out-text-encoder"
    ours = ours_after(out, "--learning_rate", 1e-4, "--text_encoder_lr", 5e-4, "--max_train_steps", steps)
    latents = read_latents(data.parent / "cache")

    def loss_of(place, sample):
        x0 = latents[place]
        s = math.exp(0.5 + (1.15 - 0.5) / (4096 - 256) * (x0.shape[1] * x0.shape[2] - 256))
        v = 1 / (1 + math.exp(-normals_exact(SEED, 2, sample)))
        t = torch.tensor(np.float32(s * v / (1 + (s - 1) * v)))
        eps = torch.from_numpy(normals(SEED, 1, sample, x0.numel()).copy()).reshape(x0.shape)
        text = text_states(encoder, geometry, *tokens[place])
        return ((velocity(transformer, (1 - t) * x0 + t * eps, text, t) - (eps - x0)) ** 2).mean()

    optimisers = [adamw(list(transformer.parameters()), 1e-4), adamw(list(trained.values()), 5e-4)]
    parameters = list(transformer.parameters()) + list(trained.values())
    first = {}

    def step():
        if not first:
            first.update({name: p.grad.clone() for name, p in trained.items()})
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimiser in optimisers:
            optimiser.step()

    losses = run_steps(parameters, loss_of, steps, step)
    report.compare("text encoder: losses", logged_losses(out), torch.tensor(losses), 1e-5)
    stored = load_file(folder / "text_encoder" / "model.safetensors")
    report.equal("text encoder: tensors of the file", sorted(ours), sorted(stored))
    names = sorted(trained)
    after = {name: p.detach() for name, p in trained.items()}
    report.compare(f"text encoder: weights after {steps} steps", flat(ours, names), flat(after, names), 1e-5)
    change = [flat({name: side[name] - before[name] for name in names}, names) for side in (ours, after)]
    report.compare("text encoder: change of the weights", change[0], change[1], 2e-3)
    # One step of plain descent is the gradient; with a large rate it is not lost beside the weights.
    rate = 1000
    one = ours_after(
        scratch / "out-text-encoder-gradient", "--optimizer_type", "sgd", "--learning_rate", rate, "--max_train_steps", 1,
        "--max_grad_norm", 0,
    )  # fmt: skip
    moved = {name: (before[name].double() - one[name].double()) / rate for name in names}
    report.compare("text encoder: gradient", flat(moved, names), flat(first, names), 1e-5)
    rest = [name for name in stored if name not in trained]
    report.equal("text encoder: other tensors", [name for name in rest if not torch.equal(ours[name], stored[name])], [])
    program.run("convert", out / "x.safetensors", "-o", out / "diffusers.safetensors", "--to", "diffusers", "--quiet")
    both = [load_file(out / "diffusers.safetensors"), transformer.state_dict()]
    names = sorted(both[1])
    report.compare("text encoder: transformer beside it", flat(both[0], names), flat(both[1], names), 1e-5)


def run(report, program, scratch):
    if not report.wants("training parts"):
        return
    with report.area("training parts"):
        geometry = Geometry("parts", heads=2, double_blocks=1, single_blocks=2, text_length=24, distilled=False)
        folder = small_models.write_model(geometry, scratch / "parts-model", seed=23)
        data = write_dataset(scratch / "parts-data")
        check_autoencoder(report, program, folder, scratch, data)
        check_text_encoder(report, program, folder, scratch, data, geometry)
