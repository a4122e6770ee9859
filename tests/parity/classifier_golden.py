"""Writes tests/golden/classifier: a small random ViT and what transformers computes with it. Run by hand when the format changes."""

import json
import pathlib

import numpy
import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden/classifier"


def picture(width, height, channels, factor):
    """The same samples as the test makes: sample i is i · factor modulo 251."""
    values = (numpy.arange(width * height * channels, dtype=numpy.int64) * factor % 251).astype(numpy.uint8)
    shape = (height, width) if channels == 1 else (height, width, channels)
    return Image.fromarray(values.reshape(shape), {1: "L", 3: "RGB", 4: "RGBA"}[channels])


def resized(image, width, height, resample):
    """Pillow up to version 12 always resizes rows first. Later versions choose what is faster, and differ in the last bit."""
    return image.resize((width, image.height), resample).resize((width, height), resample)


def inputs(image, side):
    small = resized(image.convert("RGB"), side, side, Image.Resampling.BILINEAR)
    values = torch.from_numpy(numpy.asarray(small).astype(numpy.float32) / 255)
    return ((values - 0.5) / 0.5).permute(2, 0, 1)[None]


def main():
    torch.manual_seed(5)
    config = ViTConfig(hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=48, image_size=48, patch_size=8,
                       id2label={0: "normal", 1: "nsfw"}, label2id={"normal": 0, "nsfw": 1})  # fmt: skip
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(FOLDER)
    runs = []
    for width, height, channels, factor in ((48, 48, 3, 7), (61, 33, 3, 11), (20, 90, 4, 13), (130, 70, 1, 3)):
        with torch.no_grad():
            logits = model(inputs(picture(width, height, channels, factor), 48)).logits[0]
        runs.append({"width": width, "height": height, "channels": channels, "factor": factor, "logits": logits.tolist()})
    (FOLDER / "runs.json").write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
