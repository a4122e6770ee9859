"""Writes tests/golden/clip: a small random CLIP and what transformers computes with it. Run by hand when the format changes."""

import json
import pathlib

import numpy
import torch
from PIL import Image
from transformers import CLIPConfig, CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from classifier_golden import picture, resized

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden/clip"
SIDE = 48
MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def columns_first(image, width, height, resample):
    return image.resize((image.width, height), resample).resize((width, height), resample)


def pixels(image, side, resize=resized):
    """What CLIPImageProcessor does with Pillow up to version 12. Later versions choose the order of the passes."""
    image = image.convert("RGB")
    short, long = sorted(image.size)
    long = int(side * long / short)
    width, height = (side, long) if image.width <= image.height else (long, side)
    left, top = (width - side) // 2, (height - side) // 2
    middle = resize(image, width, height, Image.Resampling.BICUBIC).crop((left, top, left + side, top + side))
    values = torch.from_numpy(numpy.asarray(middle).astype(numpy.float32) / 255)
    return ((values - torch.tensor(MEAN)) / torch.tensor(DEVIATION)).permute(2, 0, 1)[None]


@torch.no_grad()
def pooled_and_projected(model, values):
    pooled = model.vision_model(pixel_values=values).pooler_output
    return pooled[0], model.visual_projection(pooled)[0]


def main():
    torch.manual_seed(9)
    vision = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, image_size=SIDE, patch_size=8)
    text = dict(vocab_size=24, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=8)
    model = CLIPModel(CLIPConfig(vision_config=vision, text_config=text, projection_dim=20)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(FOLDER)
    processor = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    processor.save_pretrained(FOLDER)
    runs = []
    for width, height, channels, factor in ((48, 48, 3, 7), (131, 63, 3, 11), (40, 97, 4, 13), (203, 70, 1, 3), (3, 200, 3, 17), (1, 1, 3, 5)):
        values = pixels(picture(width, height, channels, factor), SIDE)
        pooled, projected = pooled_and_projected(model, values)
        runs.append({"width": width, "height": height, "channels": channels, "factor": factor, "pooled": pooled.tolist(),
                     "projected": projected.tolist()})  # fmt: skip
    (FOLDER / "runs.json").write_text(json.dumps(runs) + "\n")


if __name__ == "__main__":
    main()
