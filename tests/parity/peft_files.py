"""Adapters made by PyPI's peft on diffusers' transformer: merged by us they give the weights that peft merges itself."""

import json

import torch
from safetensors.torch import load_file

import small_models
from small_models import Geometry

ATTENTION = ["to_q", "to_k", "to_v", "add_q_proj", "to_out.0", "to_qkv_mlp_proj"]
EVERYTHING = (
    r".*(attn\.to_(q|k|v|out\.0|add_out|qkv_mlp_proj)|single_transformer_blocks\.\d+\.attn\.to_out|add_[qkv]_proj"
    r"|linear_(in|out|1|2)|x_embedder|context_embedder|proj_out|norm_out\.linear|modulation(_img|_txt)?\.linear)"
)


def configurations():
    from peft import LoHaConfig, LoKrConfig, LoraConfig

    return {
        "lora": LoraConfig(r=4, lora_alpha=6, target_modules=ATTENTION),
        "every layer": LoraConfig(r=3, lora_alpha=3, target_modules=EVERYTHING),
        "patterns": LoraConfig(
            r=4, lora_alpha=8, target_modules=ATTENTION,
            rank_pattern={"to_q": 2, r"transformer_blocks\.1\.attn\.to_k": 6},
            alpha_pattern={"to_v": 1, r"(single_)?transformer_blocks\.\d+\.attn\.to_qkv_mlp_proj": 12},
        ),
        "rslora": LoraConfig(r=4, lora_alpha=4, use_rslora=True, target_modules=ATTENTION),
        "dora": LoraConfig(r=4, lora_alpha=4, use_dora=True, target_modules=ATTENTION),
        "loha": LoHaConfig(r=4, alpha=8, target_modules=ATTENTION, module_dropout=0.0),
        "lokr": LoKrConfig(r=4, alpha=2, target_modules=ATTENTION, module_dropout=0.0),
        "lokr, whole factors": LoKrConfig(r=64, alpha=32, target_modules=ATTENTION, module_dropout=0.0),
    }  # fmt: skip


def check_configuration(report, program, scratch, base, name, config, seed):
    from peft import get_peft_model

    folder = scratch / f"peft-{name.replace(' ', '-')}"
    generator = torch.Generator().manual_seed(seed)
    model = get_peft_model(small_models.load_transformer(base), config)
    with torch.no_grad():  # what training would leave: nothing is zero, magnitudes are no longer those of the weights
        for key, p in model.named_parameters():
            if "magnitude" in key:
                p.mul_(1 + 0.3 * torch.rand(p.shape, generator=generator))
            elif p.requires_grad:
                p.copy_(0.2 * torch.randn(p.shape, generator=generator))
    model.save_pretrained(folder)
    theirs = {k: v.clone() for k, v in model.merge_and_unload().state_dict().items()}
    original = small_models.load_transformer(base).state_dict()

    merged, back = scratch / "peft-merged.safetensors", scratch / "peft-diffusers.safetensors"
    program.run("lora", "merge", folder, "--into", base / "transformer", "-o", merged, "--quiet")
    program.run("convert", merged, "-o", back, "--to", "diffusers", "--quiet")
    ours = load_file(back)
    report.equal(f"{name}: tensors", sorted(ours), sorted(theirs))
    changed = sorted(k for k in theirs if not torch.equal(theirs[k], original[k]))
    kept = [k for k in theirs if k not in changed and not torch.equal(ours[k], theirs[k])]
    report.equal(f"{name}: tensors changed by us alone", kept, [])
    report.check(f"{name}: changes something", len(changed) >= 6, f"{len(changed)} tensors")
    for key in changed:
        report.compare(f"{name}: {key}", ours[key], theirs[key], tolerance=1e-6)

    told = json.loads(program.run("lora", "check", folder, "--model", base / "transformer", "--json"))
    report.equal(f"{name}: unknown keys", told["unknown_keys"] + told["unmatched"], [])


def run(report, program, scratch):
    if not report.wants("peft"):
        return
    try:
        import peft  # noqa: F401
    except ImportError:
        report.skip("peft", "the package peft is not installed")
        return
    base = scratch / "peft-base"
    small_models.write_model(Geometry("peft", double_blocks=2, single_blocks=2, guidance_embedding=True), base, 5)
    for seed, (name, config) in enumerate(configurations().items()):
        with report.area(f"peft {name}"):
            check_configuration(report, program, scratch, base, name, config, seed)
