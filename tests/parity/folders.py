"""Folders that our converter writes, read by diffusers and transformers: the same configuration, the same tensors."""

import json

import torch
from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel
from transformers import Qwen3ForCausalLM

import small_models
from small_models import Geometry

PARTS = {  # folder → name of the part, class that reads it
    "transformer": ("transformer", Flux2Transformer2DModel),
    "vae": ("vae", AutoencoderKLFlux2),
    "text_encoder": ("text-encoder", Qwen3ForCausalLM),
}


def same(report, name, ours, theirs):
    report.equal(f"{name}: tensors", sorted(ours), sorted(theirs))
    different = [key for key in theirs if key in ours and not torch.equal(ours[key], theirs[key])]
    report.equal(f"{name}: tensors with other values", different, [])


def check_part(report, program, scratch, model, folder, through):
    part, reader = PARTS[folder]
    single, back = scratch / f"{folder}-{through}", scratch / f"{folder}-{through}-back"
    single = single.with_suffix(".gguf" if through == "gguf" else ".safetensors")
    program.run("convert", model, "--part", part, "-o", single, "--to", through, "--quant-rule", ".=f32", "--quiet")
    program.run("convert", single, "--part", part, "-o", back, "--shard-size", "0.0003", "--quiet")
    name = f"{folder} by way of {through}"
    shards = list(back.glob("*-of-*.safetensors"))
    report.check(f"{name}: a series of files", len(shards) > 1, f"{len(shards)} files")
    theirs, ours = reader.from_pretrained(model / folder), reader.from_pretrained(back)
    same(report, name, ours.state_dict(), theirs.state_dict())
    config = json.loads((back / "config.json").read_text())
    for key, value in json.loads((model / folder / "config.json").read_text()).items():
        if key in config and not key.startswith("_") and key != "max_position_embeddings":  # which no tensor tells
            report.equal(f"{name}: {key} of config.json", config[key], value)


def run(report, program, scratch):
    if not report.wants("folders"):
        return
    model = small_models.write_model(Geometry("folders", double_blocks=2, single_blocks=2), scratch / "folders-model", 3)
    for folder in PARTS:
        for through in ("bfl", "gguf") if folder != "vae" else ("bfl",):
            with report.area(f"folders {folder} {through}"):
                check_part(report, program, scratch, model, folder, through)
