"""`flux2 vae encode` and `decode` against AutoencoderKLFlux2."""

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import reference
import small_models
from small_models import Geometry

EXACT = ("--profile", "exact", "--device", "cpu", "--quiet")
SHAPES = [
    Geometry("plain"),
    Geometry("bf16", bf16=True),
    Geometry("wide", encoder_widths=(64, 64, 96, 128)),
    Geometry("narrow-decoder", encoder_widths=(32, 64, 128, 128), decoder_widths=(32, 32, 64, 96)),
]


def check_shape(report, program, scratch, geometry, seed):
    name, folder = f"vae-{geometry.name}", scratch / f"vae-{geometry.name}"
    vae = small_models.make_vae(geometry)
    small_models.randomise(vae, torch.Generator().manual_seed(seed))
    if geometry.bf16:
        small_models.round_to_bf16(vae)
    vae.save_pretrained(folder / "vae")
    vae = small_models.load_vae(folder)
    weights = folder / "vae" / "diffusion_pytorch_model.safetensors"

    pixels = np.random.default_rng(seed).integers(0, 256, (64, 112, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "in.png")
    program.run("vae", "encode", folder / "in.png", "--vae", weights, "-o", folder / "latents.safetensors", *EXACT)
    picture = torch.from_numpy(pixels).permute(2, 0, 1).float() / 127.5 - 1
    latents = reference.encode(vae, picture)
    report.compare(f"{name}: encode", load_file(folder / "latents.safetensors")["latents"], latents)

    save_file({"latents": latents.contiguous()}, folder / "theirs.safetensors")
    program.run("vae", "decode", folder / "theirs.safetensors", "--vae", weights, "-o", folder / "out.png", *EXACT)
    ours = np.asarray(Image.open(folder / "out.png")).astype(int)
    decoded = reference.decode(vae, latents).clamp(-1, 1).permute(1, 2, 0)
    theirs = ((decoded + 1) * 127.5).round().numpy().astype(int)
    difference = np.abs(ours - theirs)
    report.check(
        f"{name}: decode",
        difference.max() <= 1 and (difference > 0).mean() < 1e-3,
        f"levels differ by up to {difference.max()}, {(difference > 0).mean():.2%} of them",
    )


def run(report, program, scratch):
    for seed, geometry in enumerate(SHAPES):
        area = f"vae {geometry.name}"
        if report.wants(area):
            with report.area(area):
                check_shape(report, program, scratch, geometry, seed)
