"""The image encoder of image prompts against transformers: CLIPVisionModelWithProjection and CLIPImageProcessor, on random weights."""

import json

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPConfig, CLIPModel, CLIPVisionConfig, CLIPVisionModelWithProjection
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import small_models
from clip_golden import columns_first, pixels, pooled_and_projected

TOLERANCE = 1e-5
TINY = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, image_size=224, patch_size=32, projection_dim=48)
LARGE = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=2, num_attention_heads=16, image_size=224, patch_size=14, projection_dim=768)
SIZES = (("RGB", 224, 224), ("RGB", 641, 200), ("RGB", 225, 1000), ("RGBA", 97, 150), ("L", 50, 301), ("RGB", 1, 1), ("RGB", 400, 3))  # fmt: skip


def random_image(path, seed, mode, width, height):
    channels = len(mode)
    values = numpy.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=numpy.uint8)
    Image.fromarray(values[:, :, 0] if channels == 1 else values, mode).save(path)


def towers():
    """Name, model, size of its images. The third has both towers in one file, and gelu instead of quick_gelu."""
    yield "tiny", CLIPVisionModelWithProjection(CLIPVisionConfig(**TINY))
    yield "large", CLIPVisionModelWithProjection(CLIPVisionConfig(**LARGE))
    text = dict(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=8)
    yield "both", CLIPModel(CLIPConfig(vision_config=TINY | {"hidden_act": "gelu", "num_attention_heads": 4}, text_config=text, projection_dim=48))


def write_adapters(folder, hidden, model):
    """Adapters that read the pooled and the projected vector."""
    for feature, width in (("pooled", model.visual_projection.in_features), ("projected", model.visual_projection.out_features)):
        about = {"encoder": "clip", "feature": feature, "tokens": 4, "form": "tokens"}
        tensors = {"image_proj.proj.weight": torch.zeros(4 * hidden, width), "image_proj.proj.bias": torch.zeros(4 * hidden),
                   "image_proj.norm.weight": torch.ones(hidden), "image_proj.norm.bias": torch.zeros(hidden)}  # fmt: skip
        save_file(tensors, folder / f"{feature}.safetensors", {"flux2.image_prompt": json.dumps(about)})


def encoded(program, folder, encoder, feature, image):
    options = ["--prompt", "a", "--model", folder / "model", "--size", "64x64", "--steps", 1, "--seed", 0, "--image-prompt", image]
    options += ["--image-prompt-adapter", folder / f"{feature}.safetensors", "--image-prompt-encoder", encoder]
    return program.generate(*options)["image_prompts.0.feature"]


def check_tower(report, program, folder, name, model):
    model = model.eval()
    small_models.randomise(model, torch.Generator().manual_seed(len(name)))
    model.save_pretrained(folder / name)
    processor = CLIPImageProcessorPil()
    processor.save_pretrained(folder / name)
    write_adapters(folder, 256, model)
    for seed, (mode, width, height) in enumerate(SIZES):
        path = folder / f"{seed}.png"
        random_image(path, seed, mode, width, height)
        image = Image.open(path)
        values = pixels(image, 224)
        theirs = processor(image.convert("RGB"), return_tensors="pt")["pixel_values"].float()
        different = min((v - theirs).abs().max().item() for v in (values, pixels(image, 224, columns_first)))
        report.check(f"{name}: {mode} {width}x{height} as CLIPImageProcessor prepares it", different <= TOLERANCE,
                     f"the largest difference is {different}")  # fmt: skip
        pooled, projected = pooled_and_projected(model, values)
        for feature, wanted in (("pooled", pooled), ("projected", projected)):
            ours = encoded(program, folder, folder / name, feature, path)
            report.compare(f"{name}: {mode} {width}x{height} {feature}", ours, wanted, TOLERANCE)


def check_synthetic(report, program, folder):
    """What `models synth` writes is a model of transformers, and its vectors tell images apart."""
    program.run("models", "synth", "--variant", "clip-tiny", "--out", folder / "synthetic", "--seed", 3)
    model, loading = CLIPVisionModelWithProjection.from_pretrained(folder / "synthetic", output_loading_info=True)
    report.equal("synthetic: missing and unexpected tensors", [len(loading[k]) for k in ("missing_keys", "unexpected_keys")], [0, 0])
    write_adapters(folder, 256, model)
    vectors = []
    for colour in ("red", "blue"):
        path = folder / f"{colour}.png"
        Image.new("RGB", (80, 60), colour).save(path)
        wanted = pooled_and_projected(model.eval(), pixels(Image.open(path), 224))[0]
        vectors.append(encoded(program, folder, folder / "synthetic", "pooled", path))
        report.compare(f"synthetic: {colour}", vectors[-1], wanted, TOLERANCE)
    likeness = torch.nn.functional.cosine_similarity(*vectors, dim=0).item()
    report.check("synthetic: red and blue differ", likeness < 0.9, f"the cosine of their vectors is {likeness}")


def run(report, program, scratch):
    folder = scratch / "clip"
    folder.mkdir()
    areas = [(f"clip {name}", name, model) for name, model in towers()]
    if any(report.wants(area) for area, _, _ in areas) or report.wants("clip synthetic"):
        program.run("models", "synth", "--variant", "tiny", "--dtype", "f32", "--out", folder / "model")
    for area, name, model in areas:
        if report.wants(area):
            with report.area(area):
                check_tower(report, program, folder, name, model)
    if report.wants("clip synthetic"):
        with report.area("clip synthetic"):
            check_synthetic(report, program, folder)
