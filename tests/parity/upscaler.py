"""`flux2 upscale --method esrgan` against the same network made of PyTorch's layers, and .pth files that torch.save wrote."""

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

TOLERANCE = 1e-5


class DenseBlock(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        for k in range(1, 5):
            setattr(self, f"conv{k}", nn.Conv2d(width + (k - 1) * growth, growth, 3, padding=1))
        self.conv5 = nn.Conv2d(width + 4 * growth, width, 3, padding=1)

    def forward(self, x):
        seen = x
        for k in range(1, 5):
            seen = torch.cat([seen, functional.leaky_relu(getattr(self, f"conv{k}")(seen), 0.2)], 1)
        return x + 0.2 * self.conv5(seen)


class Block(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = (DenseBlock(width, growth) for _ in range(3))

    def forward(self, x):
        return x + 0.2 * self.rdb3(self.rdb2(self.rdb1(x)))


class Network(nn.Module):
    def __init__(self, scale, blocks, width, growth):
        super().__init__()
        self.fold = 4 // scale
        self.conv_first = nn.Conv2d(3 * self.fold**2, width, 3, padding=1)
        self.body = nn.Sequential(*(Block(width, growth) for _ in range(blocks)))
        self.conv_body, self.conv_up1, self.conv_up2, self.conv_hr = (nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.conv_last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        f = self.conv_first(functional.pixel_unshuffle(x, self.fold))
        f = f + self.conv_body(self.body(f))
        for layer in (self.conv_up1, self.conv_up2):
            f = functional.leaky_relu(layer(functional.interpolate(f, scale_factor=2, mode="nearest")), 0.2)
        return self.conv_last(functional.leaky_relu(self.conv_hr(f), 0.2))


def older_name(name, blocks):
    """The name that ESRGAN's first files give to a tensor."""
    layer, kind = name.rsplit(".", 1)
    fixed = {"conv_first": "model.0", "conv_body": f"model.1.sub.{blocks}", "conv_up1": "model.3", "conv_up2": "model.6",
             "conv_hr": "model.8", "conv_last": "model.10"}  # fmt: skip
    if layer in fixed:
        return f"{fixed[layer]}.{kind}"
    _, block, dense, conv = layer.split(".")
    return f"model.1.sub.{block}.{dense.upper()}.{conv}.0.{kind}"


def check_network(report, program, folder, name, scale, blocks, width, growth, older, size):
    torch.manual_seed(scale + blocks)
    network = Network(scale, blocks, width, growth).eval()
    weights = network.state_dict()
    stored = {older_name(k, blocks) if older else k: v for k, v in weights.items()}
    file = folder / f"{name}.safetensors"
    save_file(stored, file)
    pixels = np.random.default_rng(scale).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "in.png")
    program.run("upscale", folder / "in.png", "--method", "esrgan", "--upscaler", file, "--trace", folder / "trace.safetensors",
                "-o", folder / "out.png", "--profile", "exact", "--device", "cpu", "--quiet")  # fmt: skip
    with torch.no_grad():
        theirs = network(torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255)[0]
    report.compare(f"{name}: values", load_file(folder / "trace.safetensors")["picture"], theirs, TOLERANCE)
    ours = np.asarray(Image.open(folder / "out.png")).astype(int)
    levels = (theirs.clamp(0, 1) * 255).round().permute(1, 2, 0).numpy().astype(int)
    report.check(f"{name}: picture", ours.shape == levels.shape and np.abs(ours - levels).max() <= 1, "levels differ by more than 1")

    torch.save({"params_ema": stored}, folder / f"{name}.pth")
    converted = folder / f"{name}-converted.safetensors"
    program.run("convert", folder / f"{name}.pth", "-o", converted, "--upscaler", "--quiet")
    ours = load_file(converted)
    same = ours.keys() == stored.keys() and all(torch.equal(ours[k], stored[k]) for k in stored)
    report.check(f"{name}: .pth", same, "the tensors differ")


def run(report, program, scratch):
    cases = [(f"x{scale}{'-older' if older else ''}", scale, 2, 12, 6, older, (20, 12)) for scale in (1, 2, 4) for older in (False, True)]
    cases += [("x4-full", 4, 23, 64, 32, False, (24, 16)), ("x2-full", 2, 23, 64, 32, False, (32, 24))]
    folder = scratch / "upscaler"
    folder.mkdir()
    for case in cases:
        area = f"upscaler {case[0]}"
        if report.wants(area):
            with report.area(area):
                check_network(report, program, folder, *case)
