"""Training against a PyTorch loop written from the formulas: the adapter after every step, for every kind of adapter."""

import functools
import json
import math

import numpy as np
import torch
from diffusers.models.transformers import transformer_flux2
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import reference
import small_models
from small_models import Geometry

SEED, BATCH = 42, 2
CAPTIONS = ["a red fox", "an old castle", "the sea at night", "two gulls", "a quiet street"]


# ---- Random numbers: Philox4x32-10 with the counter (block, purpose, index).
def philox(seed, purpose, index, block):
    c = [block & 0xFFFFFFFF, purpose, index & 0xFFFFFFFF, index >> 32]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return [(x + 0.5) * 2.0**-32 for x in c]


def uniform(seed, purpose, index, element):
    return philox(seed, purpose, index, element // 4)[element % 4]


@functools.lru_cache(maxsize=1000)
def normals(seed, purpose, index, count):
    values = []
    for block in range((count + 3) // 4):
        u = philox(seed, purpose, index, block)
        for a, b in ((u[0], u[1]), (u[2], u[3])):
            radius = math.sqrt(-2 * math.log(a))
            values += [radius * math.cos(2 * math.pi * b), radius * math.sin(2 * math.pi * b)]
    return np.array(values[:count], dtype=np.float64).astype(np.float32)


def shuffled(values, seed, purpose, index):
    values = list(values)
    for i in range(len(values) - 1, 0, -1):
        j = int(uniform(seed, purpose, index, i) * (i + 1))
        values[i], values[j] = values[j], values[i]
    return values


def batches_of_epoch(items, epoch):
    """One dataset with one bucket: items are shuffled, cut into batches, and the batches are shuffled."""
    order = shuffled(range(items), SEED, 6, epoch << 32)
    return shuffled([order[i : i + BATCH] for i in range(0, items, BATCH)], SEED, 7, epoch)


# ---- Adapters on the fused layers of the original model, applied to diffusers' separate ones.
def layers_of(model):
    """Path → the layers of diffusers that hold its rows, in order."""
    layers = {}
    for i, block in enumerate(model.transformer_blocks):
        a, prefix = block.attn, f"double_blocks.{i}"
        layers[f"{prefix}.img_attn.qkv"] = [a.to_q, a.to_k, a.to_v]
        layers[f"{prefix}.img_attn.proj"] = [a.to_out[0]]
        layers[f"{prefix}.img_mlp.0"] = [block.ff.linear_in]
        layers[f"{prefix}.img_mlp.2"] = [block.ff.linear_out]
        layers[f"{prefix}.txt_attn.qkv"] = [a.add_q_proj, a.add_k_proj, a.add_v_proj]
        layers[f"{prefix}.txt_attn.proj"] = [a.to_add_out]
        layers[f"{prefix}.txt_mlp.0"] = [block.ff_context.linear_in]
        layers[f"{prefix}.txt_mlp.2"] = [block.ff_context.linear_out]
    for i, block in enumerate(model.single_transformer_blocks):
        layers[f"single_blocks.{i}.linear1"] = [block.attn.to_qkv_mlp_proj]
        layers[f"single_blocks.{i}.linear2"] = [block.attn.to_out]
    return layers


def factors(dimension):
    best = (1, dimension)
    for first in range(1, math.isqrt(dimension) + 1):
        if dimension % first == 0:
            best = (first, dimension // first)
    return best


class Adapter:
    """The trained tensors of one layer, by their names in files, and the weight they make of a frozen one."""

    def __init__(self, kind, weight, dim, alpha, generator):
        out, inn = weight.shape
        self.kind, self.alpha, self.scale = kind, alpha, alpha / dim

        def random(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float32) * 0.1

        if kind in ("lora", "dora"):
            self.parts = {"lora_down.weight": random(dim, inn), "lora_up.weight": random(out, dim) * 0.1}
            if kind == "dora":
                self.parts["dora_scale"] = weight.norm(dim=1, keepdim=True).float()
        elif kind == "loha":
            self.parts = {
                "hada_w1_a": random(out, dim), "hada_w1_b": random(dim, inn),
                "hada_w2_a": random(out, dim) * 0.1, "hada_w2_b": random(dim, inn),
            }  # fmt: skip
        else:
            (ol, ok), (im, i_n) = factors(out), factors(inn)
            self.parts = {"lokr_w1": random(ol, im)}
            if 2 * dim < max(ok, i_n):
                self.parts |= {"lokr_w2_a": random(ok, dim), "lokr_w2_b": random(dim, i_n) * 0.1}
            else:
                self.parts["lokr_w2"] = random(ok, i_n) * 0.1
                self.alpha, self.scale = float(dim), 1.0
        for p in self.parts.values():
            p.requires_grad_(True)

    def weight(self, frozen):
        p = self.parts
        if self.kind in ("lora", "dora"):
            changed = frozen + self.scale * p["lora_up.weight"] @ p["lora_down.weight"]
            if self.kind == "lora":
                return changed
            return p["dora_scale"] * changed / changed.norm(dim=1, keepdim=True).detach()
        if self.kind == "loha":
            return frozen + self.scale * (p["hada_w1_a"] @ p["hada_w1_b"]) * (p["hada_w2_a"] @ p["hada_w2_b"])
        w2 = p["lokr_w2"] if "lokr_w2" in p else p["lokr_w2_a"] @ p["lokr_w2_b"]
        return frozen + self.scale * torch.kron(p["lokr_w1"], w2)


def attach(layers, adapter, frozen):
    start = 0
    for layer in layers:
        rows = slice(start, start + layer.out_features)
        start = rows.stop
        layer.forward = lambda x, rows=rows: torch.nn.functional.linear(x, adapter.weight(frozen)[rows])


def fp8_rows(weight):
    """e4m3 with a scale for each row, as the program keeps a frozen base in 8 bits."""
    scale = weight.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 448
    return (weight / scale).to(torch.float8_e4m3fn).to(torch.float32) * scale


# ---- The loop.
def train(model, named, items, steps, rate=1e-3, decays=lambda p: True, objective=None):
    objective = objective or (lambda x, text, t, target, references: ((velocity(model, x, text, t) - target) ** 2).mean())
    parameters = list(named.values())
    groups = [{"params": [p for p in parameters if decays(p)]}, {"params": [p for p in parameters if not decays(p)], "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW([g for g in groups if g["params"]], lr=rate, weight_decay=0.01)
    history, losses, epoch, sample = [], [], 0, 0
    while len(history) < steps:
        for batch in batches_of_epoch(len(items), epoch):
            optimiser.zero_grad()
            total = 0.0
            for place in batch:
                x0, text, references = items[place]
                tokens = x0.shape[1] * x0.shape[2]
                s = math.exp(0.5 + (1.15 - 0.5) / (4096 - 256) * (tokens - 256))
                n = normals_exact(SEED, 2, sample)
                v = 1 / (1 + math.exp(-n))
                t = torch.tensor(np.float32(s * v / (1 + (s - 1) * v)))
                eps = torch.from_numpy(normals(SEED, 1, sample, x0.numel()).copy()).reshape(x0.shape)
                sample += 1
                with torch.enable_grad():
                    loss = objective((1 - t) * x0 + t * eps, text, t, eps - x0, references) / len(batch)
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            losses.append(total)
            history.append({name: p.detach().clone() for name, p in named.items()})
            if len(history) == steps:
                break
        epoch += 1
    return history, losses


def normals_exact(seed, purpose, index):
    u = philox(seed, purpose, index, 0)
    return math.sqrt(-2 * math.log(u[0])) * math.cos(2 * math.pi * u[1])


velocity = reference.velocity.__wrapped__  # with gradients


# ---- References with a time of their own: the model again, from its layers, since diffusers' one has a single time.
def velocity_with_references(model, latents, text, t, references, zero_time, apart):
    """latents [128, h, w], references [[128, h, w]] → [128, h, w]. Reference tokens are conditioned on time 0 if zero_time, and
    see only each other if apart."""
    pipeline = reference.Flux2KleinPipeline
    target = latents.flatten(1).T[None]
    tokens = torch.cat([target] + [r.flatten(1).T[None] for r in references], dim=1)
    ids = [pipeline._prepare_text_ids(text[None])[0], pipeline._prepare_latent_ids(latents[None])[0]]
    for k, r in enumerate(references):
        own = pipeline._prepare_latent_ids(r[None])[0].clone()
        own[:, 0] = 10 + 10 * k
        ids.append(own)
    rotary = model.pos_embed(torch.cat(ids))
    length, n = text.shape[0], target.shape[1]
    count = tokens.shape[1] - n  # reference tokens, the last ones

    def conditioning(time):
        return model.time_guidance_embed((1000 * time).reshape(1), None)

    main, clean = conditioning(t), conditioning(torch.zeros(()) if zero_time else t)

    def by_row(layer, rows, sets):
        """shift, scale, gate of each token, for `sets` branches: references have those of their own time."""
        m, c = (layer(v).reshape(sets, 3, 1, -1) for v in (main, clean))
        whole = [m.expand(-1, -1, rows - count, -1), c.expand(-1, -1, count, -1)]
        return torch.cat(whole, dim=2) if rows > count else m

    def norm(x, m):
        return (1 + m[1]) * torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6) + m[0]

    def heads(x, attention):
        return x.unflatten(-1, (attention.heads, -1))

    def attend(q, k, v):
        q, k = (rotate(x, rotary) for x in (q, k))
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        product = torch.nn.functional.scaled_dot_product_attention
        if not apart:
            return product(q, k, v).transpose(1, 2).flatten(2)
        parts = [product(q[:, :, :-count], k, v), product(q[:, :, -count:], k[:, :, -count:], v[:, :, -count:])]
        return torch.cat(parts, dim=2).transpose(1, 2).flatten(2)

    img, txt = model.x_embedder(tokens), model.context_embedder(text[None])
    img_mod = by_row(model.double_stream_modulation_img, tokens.shape[1], 2)
    txt_mod = model.double_stream_modulation_txt(main).reshape(2, 3, 1, -1)
    for block in model.transformer_blocks:
        a = block.attn
        i, t_ = norm(img, img_mod[0]), norm(txt, txt_mod[0])
        q = torch.cat([a.norm_added_q(heads(a.add_q_proj(t_), a)), a.norm_q(heads(a.to_q(i), a))], dim=1)
        k = torch.cat([a.norm_added_k(heads(a.add_k_proj(t_), a)), a.norm_k(heads(a.to_k(i), a))], dim=1)
        v = torch.cat([heads(a.add_v_proj(t_), a), heads(a.to_v(i), a)], dim=1)
        out = attend(q, k, v)
        img = img + img_mod[0][2] * a.to_out[0](out[:, length:])
        txt = txt + txt_mod[0][2] * a.to_add_out(out[:, :length])
        img = img + img_mod[1][2] * block.ff(norm(img, img_mod[1]))
        txt = txt + txt_mod[1][2] * block.ff_context(norm(txt, txt_mod[1]))
    x = torch.cat([txt, img], dim=1)
    mod = by_row(model.single_stream_modulation, x.shape[1], 1)[0]
    for block in model.single_transformer_blocks:
        a = block.attn
        width = a.heads * a.head_dim
        qkv, gate_up = a.to_qkv_mlp_proj(norm(x, mod)).split([3 * width, a.to_qkv_mlp_proj.out_features - 3 * width], dim=-1)
        q, k, v = (heads(part, a) for part in qkv.chunk(3, dim=-1))
        gate, up = gate_up.chunk(2, dim=-1)
        out = torch.cat([attend(a.norm_q(q), a.norm_k(k), v), torch.nn.functional.silu(gate) * up], dim=-1)
        x = x + mod[2] * a.to_out(out)
    out = model.proj_out(model.norm_out(x[:, length : length + n], main))
    return out[0].T.reshape(latents.shape)


def rotate(x, rotary):
    """x [B, S, H, D], rotary cos and sin [S, D], pairs side by side."""
    cos, sin = (r[None, :, None, :] for r in rotary)
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
    return x * cos + turned * sin


def file_name(path):
    return "lora_unet_" + path.replace(".", "_")


def write_dataset(folder, references=False):
    generator = np.random.default_rng(5)
    images = folder / "images"
    images.mkdir(parents=True)
    for i, caption in enumerate(CAPTIONS):
        # Larger than the bucket in both directions, so that images are scaled and cropped.
        Image.fromarray(generator.integers(0, 256, (90 + i, 80, 3), dtype=np.uint8)).save(images / f"item{i}.png")
        (images / f"item{i}.txt").write_text(caption + "\n")
        if references:
            (folder / "references").mkdir(exist_ok=True)
            Image.fromarray(generator.integers(0, 256, (48, 96, 3), dtype=np.uint8)).save(folder / "references" / f"item{i}.png")
    config = {
        "general": {"resolution": [64, 64], "caption_extension": ".txt", "batch_size": BATCH},
        "datasets": [{"image_directory": str(images), "cache_directory": str(folder / "cache")}],
    }
    if references:
        config["datasets"][0] |= {"control_directory": str(folder / "references"), "no_resize_control": True}
    (folder / "data.json").write_text(json.dumps(config))
    return folder / "data.json"


def read_caches(folder):
    """x0, text states and references of each item, in the order of the cache files' names."""
    items = []
    for latent in sorted(p for p in folder.glob("*.safetensors") if not p.stem.endswith("_te")):
        stem, _, architecture = latent.stem.rsplit("_", 2)
        values, text = load_file(latent), load_file(folder / f"{stem}_{architecture}_te.safetensors")
        x0 = next(v for k, v in values.items() if k.startswith("latents_") and "control" not in k)
        references = [v.float() for k, v in sorted(values.items()) if k.startswith("latents_control_")]
        items.append((x0.float(), next(v for k, v in text.items() if k.startswith("ctx_vec")).float(), references))
    return items


def check_kind(report, program, folder, scratch, data, kind, steps=10, fp8=False, tolerance=1e-5, variant="", options=(), objective=None):
    """`objective(model)` makes the loss of one sample; without it, that of the plain objective is used."""
    name = kind + (" on fp8" if fp8 else "") + (f", {variant}" if variant else "")
    model = small_models.load_transformer(folder).requires_grad_(False)
    generator = torch.Generator().manual_seed(3)
    adapters, start = {}, {}
    for path, layers in layers_of(model).items():
        frozen = torch.cat([layer.weight for layer in layers]).detach().clone()
        if fp8:
            frozen = fp8_rows(frozen)
        adapter = Adapter(kind, frozen, 4, 2.0, generator)
        attach(layers, adapter, frozen)
        adapters[file_name(path)] = adapter
        start |= {f"{file_name(path)}.{role}": p.detach() for role, p in adapter.parts.items()}
        start[f"{file_name(path)}.alpha"] = torch.tensor(adapter.alpha)
    save_file({k: v.contiguous() for k, v in start.items()}, scratch / "start.safetensors")

    out = scratch / f"out-{name.replace(' ', '-').replace(',', '')}"
    module = {"lora": "lora_flux_2", "dora": "lora_flux_2"}.get(kind, kind)
    extra = ["--network_args", "dora=True"] if kind == "dora" else []
    if fp8:
        extra += ["--fp8_base", "--fp8_scaled"]
    program.run(
        "train", "-m", folder, "--dataset_config", data, "--network_module", f"networks.{module}", "--network_dim", 4,
        "--network_alpha", 2, "--network_weights", scratch / "start.safetensors", "--learning_rate", 1e-3,
        "--timestep_sampling", "flux2_shift", "--max_train_steps", steps, "--save_every_n_steps", 1, "--seed", SEED,
        "--output_dir", out, "--output_name", "x", "--profile", "exact", "--device", "cpu", "--quiet", *extra, *options,
    )  # fmt: skip
    items = read_caches(data.parent / "cache")
    named = {f"{name}.{role}": p for name, a in adapters.items() for role, p in a.parts.items()}
    theirs, losses = train(model, named, items, steps, objective=objective and objective(model))
    for step in {1, 2, steps // 2, steps}:
        file = out / ("x.safetensors" if step == steps else f"x-step{step:08d}.safetensors")
        ours = load_file(file)
        flat = [torch.cat([side[k].flatten() for k in theirs[step - 1]]) for side in (ours, theirs[step - 1])]
        report.compare(f"{name}: adapter after step {step}", flat[0], flat[1], tolerance)
    logged = [json.loads(line) for line in (out / "x.jsonl").read_text().splitlines()]
    logged = torch.tensor([e["loss"] for e in logged if e["event"] == "step"])
    report.compare(f"{name}: losses", logged, torch.tensor(losses), tolerance)
    with safe_open(out / "x.safetensors", "pt") as file:
        report.equal(f"{name}: ss_steps", file.metadata()["ss_steps"], str(steps))


def check_full(report, program, folder, scratch, data, steps=10):
    """The whole transformer; weight decay leaves out vectors."""
    model = small_models.load_transformer(folder).requires_grad_(True)
    out = scratch / "out-full"
    program.run(
        "train", "-m", folder, "--dataset_config", data, "--full", "--learning_rate", 1e-4, "--timestep_sampling", "flux2_shift",
        "--max_train_steps", steps, "--seed", SEED, "--output_dir", out, "--output_name", "x", "--profile", "exact",
        "--device", "cpu", "--quiet",
    )  # fmt: skip
    items = read_caches(data.parent / "cache")
    theirs, losses = train(model, dict(model.named_parameters()), items, steps, rate=1e-4, decays=lambda p: p.ndim > 1)
    program.run("convert", out / "x.safetensors", "-o", out / "diffusers.safetensors", "--to", "diffusers", "--quiet")
    ours = load_file(out / "diffusers.safetensors")
    report.equal("full: tensors", sorted(ours), sorted(theirs[-1]))
    before = small_models.load_transformer(folder).state_dict()
    change = [torch.cat([(side[k] - before[k]).flatten() for k in sorted(before)]) for side in (ours, theirs[-1])]
    report.compare("full: change of the weights", change[0], change[1], 2e-3)  # small next to the weights, which are float32
    weights = [torch.cat([side[k].flatten() for k in sorted(before)]) for side in (ours, theirs[-1])]
    report.compare("full: weights", weights[0], weights[1], 1e-5)
    logged = [json.loads(line) for line in (out / "x.jsonl").read_text().splitlines()]
    report.compare("full: losses", torch.tensor([e["loss"] for e in logged if e["event"] == "step"]), torch.tensor(losses), 1e-5)


def check_rules(report, folder):
    """Our PyTorch model with references against diffusers': its ordinary pass, and its two ways to extract keys."""
    model = small_models.load_transformer(folder).requires_grad_(False)
    generator = torch.Generator().manual_seed(9)
    x, r = (torch.randn(128, *size, generator=generator) for size in ((4, 4), (3, 6)))
    text = torch.randn(24, model.config.joint_attention_dim, generator=generator)
    pipeline, t = reference.Flux2KleinPipeline, torch.tensor(0.4)
    ids, own = (pipeline._prepare_latent_ids(v[None]).clone() for v in (x, r))
    own[..., 0] = 10

    def diffusers(first, **more):  # its order is references first where they have a time of their own
        parts = [(r, own), (x, ids)] if first else [(x, ids), (r, own)]
        v = model(
            hidden_states=torch.cat([pipeline._pack_latents(p[None]) for p, _ in parts], 1),
            img_ids=torch.cat([i for _, i in parts], 1), encoder_hidden_states=text[None], timestep=t.reshape(1),
            txt_ids=pipeline._prepare_text_ids(text[None]), return_dict=False, **more,
        )[0]  # fmt: skip
        v = v[:, -16:] if first else v[:, :16]
        return v[0].T.reshape(x.shape)

    extract = {"kv_cache_mode": "extract", "num_ref_tokens": 18}
    report.compare("references: velocity", velocity_with_references(model, x, text, t, [r], False, False), diffusers(False), 1e-5)
    report.compare("zero_cond_t: velocity", velocity_with_references(model, x, text, t, [r], True, False), diffusers(True, **extract), 1e-5)
    for block in model.transformer_blocks:
        block.attn.set_processor(transformer_flux2.Flux2KVAttnProcessor())
    for block in model.single_transformer_blocks:
        block.attn.set_processor(transformer_flux2.Flux2KVParallelSelfAttnProcessor())
    report.compare("kv_references: velocity", velocity_with_references(model, x, text, t, [r], True, True), diffusers(True, **extract), 1e-5)


def check_references(report, program, folder, scratch):
    check_rules(report, folder)
    data = write_dataset(scratch / "train-edits", references=True)
    for variant, zero_time, apart in (("references", False, False), ("zero_cond_t", True, False), ("kv_references", True, True)):

        def objective(model, zero_time=zero_time, apart=apart):
            def loss(x, text, t, target, references):
                return ((velocity_with_references(model, x, text, t, references, zero_time, apart) - target) ** 2).mean()

            return loss

        options = [] if variant == "references" else [f"--{variant}"]
        check_kind(report, program, folder, scratch, data, "lora", variant=variant, options=options, objective=objective)
        with safe_open(scratch / f"out-lora-{variant}" / "x.safetensors", "pt") as file:
            mark = file.metadata().get("ss_flux2_references")
        report.equal(f"{variant}: mark", mark, {"references": None, "kv_references": "kv"}.get(variant, variant))


def check_preservation(report, program, folder, scratch, data):
    """λ · mean (v(class) − v_base(class))² beside the loss; the class's states come from a cache made for its text."""
    (scratch / "class").mkdir()
    Image.fromarray(np.zeros((64, 64, 3), dtype=np.uint8)).save(scratch / "class" / "one.png")
    (scratch / "class" / "one.txt").write_text("a photo")
    config = json.loads(data.read_text())
    config["datasets"] = [{"image_directory": str(scratch / "class"), "cache_directory": str(scratch / "class" / "cache")}]
    (scratch / "class.json").write_text(json.dumps(config))
    program.run("dataset", "cache", scratch / "class.json", "-m", folder, "--profile", "exact", "--device", "cpu", "--quiet")
    states = read_caches(scratch / "class" / "cache")[0][1]
    base = small_models.load_transformer(folder).requires_grad_(False)

    def objective(model):
        def loss(x, text, t, target, _):
            kept = ((velocity(model, x, states, t) - velocity(base, x, states, t)) ** 2).mean()
            return ((velocity(model, x, text, t) - target) ** 2).mean() + 0.5 * kept

        return loss

    options = ["--output_preservation", 0.5, "--output_preservation_class", "a photo"]
    # The program does not round the class's states to bf16, as caches do.
    check_kind(report, program, folder, scratch, data, "lora", variant="preservation", options=options, objective=objective, tolerance=1e-4)


def run(report, program, scratch):
    if not report.wants("training"):
        return
    with report.area("training"):
        geometry = Geometry("train", heads=2, double_blocks=1, single_blocks=2, text_length=24, distilled=False)
        folder = small_models.write_model(geometry, scratch / "train-model", seed=21)
        data = write_dataset(scratch / "train-data")
        check_kind(report, program, folder, scratch, data, "lora", steps=25)
        for kind in ("dora", "loha", "lokr"):
            check_kind(report, program, folder, scratch, data, kind)
        check_kind(report, program, folder, scratch, data, "lora", fp8=True, tolerance=2e-2)
        check_full(report, program, folder, scratch, data)
        check_references(report, program, folder, scratch)
        check_preservation(report, program, folder, scratch, data)
