"""Writes reference values of a language model that sees for unit tests: python vision_golden.py tests/golden/vision

model/: a small random Mistral3ForConditionalGeneration.
images.safetensors: images, the bytes and samples that transformers' image processor (Pillow) makes of them, and the
outputs of tower and projector.
runs.json: prompts with these images, the scores of the next token, and the tokens that follow without sampling.
"""

import json
import pathlib
import sys

import numpy
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

LONGEST, PATCH, MERGE = 224, 14, 2
IMAGE, BREAK, END = 10, 12, 13


def small_model():
    config = transformers.Mistral3Config(
        text_config=dict(model_type="mistral", vocab_size=320, hidden_size=48, intermediate_size=96, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, rope_theta=1e9,
                         sliding_window=None, tie_word_embeddings=False, max_position_embeddings=512),
        vision_config=dict(model_type="pixtral", hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2,
                           head_dim=16, image_size=LONGEST, patch_size=PATCH, num_channels=3, rope_theta=10000.0, hidden_act="silu"),
        image_token_index=IMAGE, projector_hidden_act="gelu", spatial_merge_size=MERGE, vision_feature_layer=-1,
        multimodal_projector_bias=False)
    torch.manual_seed(21)
    model = transformers.Mistral3ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "ln_pre" in name:
                parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
            elif "patch_conv" in name:
                parameter.copy_(0.05 * torch.randn_like(parameter))
            else:
                parameter.copy_(0.25 * torch.randn_like(parameter))
    return model.eval().float()


def published_name(name):
    """The names of FLUX.2-dev's files."""
    if name == "lm_head.weight":
        return "language_model.lm_head.weight"
    name = name.removeprefix("model.")
    return "language_model.model." + name.removeprefix("language_model.") if name.startswith("language_model.") else name


def write_model(folder, model):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({published_name(k): v.detach().clone().contiguous() for k, v in model.state_dict().items()}, folder / "model.safetensors")
    c = model.config
    text = {k: getattr(c.text_config, k) for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                                   "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps")}
    vision = {k: getattr(c.vision_config, k) for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                                       "head_dim", "image_size", "patch_size", "num_channels")}
    written = {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "image_token_index": IMAGE,
               "projector_hidden_act": "gelu", "spatial_merge_size": MERGE, "vision_feature_layer": -1,
               "text_config": {"model_type": "mistral", "rope_theta": 1e9, **text},
               "vision_config": {"model_type": "pixtral", "rope_theta": 10000.0, **vision}}
    (folder / "config.json").write_text(json.dumps(written, indent=1) + "\n")


def random_image(seed, width, height, mode):
    """Smooth shapes with noise, so that the resampling has something to do."""
    generator = numpy.random.default_rng(seed)
    channels = {"RGB": 3, "RGBA": 4, "L": 1}[mode]
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [127 + 90 * numpy.sin(x / (7 + 3 * c)) * numpy.cos(y / (5 + 2 * c)) + generator.normal(0, 25, (height, width))
              for c in range(channels)]
    values = numpy.clip(numpy.stack(planes, -1), 0, 255).astype(numpy.uint8)
    return Image.fromarray(values[:, :, 0] if mode == "L" else values, mode)


def placed(rows, columns):
    ids = []
    for r in range(rows):
        ids += [IMAGE] * columns + [BREAK if r + 1 < rows else END]
    return ids


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    model = small_model()
    write_model(folder / "model", model)
    processor = PixtralImageProcessorPil(size={"longest_edge": LONGEST}, patch_size={"height": PATCH * MERGE, "width": PATCH * MERGE})
    tensors, runs = {}, []
    cases = [("3x2", 50, 80, "RGB"), ("5x7", 190, 130, "RGB"), ("alpha", 61, 47, "RGBA"), ("grey", 90, 33, "L"),
             ("large", 310, 170, "RGB"), ("exact", 56, 28, "RGB")]
    for seed, (name, width, height, mode) in enumerate(cases):
        image = random_image(seed, width, height, mode)
        made = processor(image if mode != "L" else image.convert("RGB"), return_tensors="pt")
        pixels = made["pixel_values"].float()
        tall, wide = (int(n) for n in made["image_sizes"][0])
        raw = numpy.asarray(image)
        tensors[f"{name}.image"] = torch.from_numpy(raw.reshape(height, width, -1).copy())
        mean, deviation = (numpy.array(v).reshape(3, 1, 1) for v in (processor.image_mean, processor.image_std))
        samples = (pixels[0].double().numpy() * deviation + mean) * 255
        assert abs(samples - samples.round()).max() < 1e-3
        tensors[f"{name}.bytes"] = torch.from_numpy(samples.round().astype(numpy.uint8).transpose(1, 2, 0).copy())
        if name not in ("3x2", "5x7"):
            continue
        tensors[f"{name}.pixels"] = pixels[0].contiguous()
        rows, columns = tall // (PATCH * MERGE), wide // (PATCH * MERGE)
        assert name == f"{rows}x{columns}"
        generator = torch.Generator().manual_seed(seed + 5)
        before = torch.randint(20, 320, (4,), generator=generator).tolist()
        after = torch.randint(20, 320, (6,), generator=generator).tolist()
        ids = torch.tensor([[1] + before + placed(rows, columns) + after])
        sizes = torch.tensor([[tall, wide]])
        with torch.no_grad():
            tower = model.model.vision_tower(pixels, image_sizes=sizes).last_hidden_state
            projected = model.model.multi_modal_projector(tower.squeeze(0), sizes)
            scores = model(input_ids=ids, pixel_values=pixels, image_sizes=sizes).logits[0, -1]
            text = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels, image_sizes=sizes,
                                  max_new_tokens=16, do_sample=False, eos_token_id=None, pad_token_id=0)
        tensors[f"{name}.tower"] = tower.squeeze(0).contiguous()
        tensors[f"{name}.projected"] = projected.squeeze(0).contiguous()
        runs.append({"image": name, "rows": rows, "columns": columns, "ids": ids[0].tolist(), "scores": scores.tolist(),
                     "made": text[0, ids.shape[1]:].tolist()})
    save_file(tensors, folder / "images.safetensors")
    (folder / "runs.json").write_text(json.dumps(runs) + "\n")


if __name__ == "__main__":
    main()
