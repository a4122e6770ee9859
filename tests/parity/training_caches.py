"""Caches of training data: images are scaled as OpenCV and Pillow do, and files are exchanged with musubi-tuner's layout."""

import json

import numpy
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

try:
    import cv2
except ImportError:
    cv2 = None

SUFFIX = "f2x572ee0"  # of the bundled model
NAME = "flux_2_custom_572ee0"
BUCKET = (96, 64)
SIZES = [(97, 65), (192, 128), (288, 192), (193, 129), (500, 333), (333, 500), (96, 64), (96, 200), (101, 64), (640, 480)]
SIZES += [(40, 30), (64, 96), (17, 23), (95, 63), (1000, 70), (70, 1000), (384, 256), (250, 250), (129, 97), (720, 576)]
SIZES += [(111, 222), (333, 111), (480, 320), (97, 64), (96, 65), (1024, 683), (127, 85), (144, 96), (77, 51), (48, 32)]


def scaled_by_others(pixels):
    """What musubi-tuner does with an image, written from its description."""
    height, width = pixels.shape[:2]
    if (width, height) == BUCKET:
        return pixels
    scale = max(BUCKET[0] / width, BUCKET[1] / height)
    size = (int(width * scale + 0.5), int(height * scale + 0.5))
    if scale > 1:
        pixels = numpy.array(Image.fromarray(pixels).resize(size, Image.LANCZOS))
    else:
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    left, top = (size[0] - BUCKET[0]) // 2, (size[1] - BUCKET[1]) // 2
    return pixels[top : top + BUCKET[1], left : left + BUCKET[0]]


def dataset(folder, images):
    """Images with captions and a dataset file."""
    (folder / "images").mkdir(parents=True)
    for name, pixels in images.items():
        Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
        (folder / "images" / f"{name}.txt").write_text(f"caption of {name}")
    table = {
        "image_directory": str(folder / "images"),
        "cache_directory": str(folder / "cache"),
        "caption_extension": ".txt",
        "resolution": list(BUCKET),
    }
    (folder / "data.json").write_text(json.dumps({"datasets": [table]}))
    return folder / "data.json"


def cached(program, config, *options):
    return json.loads(program.run("dataset", "cache", config, "--device", "cpu", "--json", *options))


def latents_in(folder):
    return {file.name.split("_")[0]: load_file(file) for file in sorted((folder / "cache").glob(f"*_{SUFFIX}.safetensors"))}


def scaling(report, program, folder, images):
    if cv2 is None:
        report.skip("scaling", "opencv-python-headless is not installed")
        return
    cached(program, dataset(folder / "scaled", {name: scaled_by_others(p) for name, p in images.items()}), "--latents")
    ours, theirs = latents_in(folder / "ours"), latents_in(folder / "scaled")
    for name, pixels in images.items():
        same = torch.equal(ours[name]["latents_4x6_float32"], theirs[name]["latents_4x6_float32"])
        report.check(f"an image of {pixels.shape[1]}x{pixels.shape[0]}", same, "other pixels than OpenCV or Pillow give")


def reading(report, folder, images):
    """Our files under musubi-tuner's rules for reading."""
    for name, pixels in images.items():
        file = folder / "cache" / f"{name}_{pixels.shape[1]:04d}x{pixels.shape[0]:04d}_{SUFFIX}.safetensors"
        report.check(f"the file {file.name}", file.exists(), "does not exist")
        with safe_open(file, "pt") as opened:
            report.equal(f"tensors of {name}", list(opened.keys()), ["latents_4x6_float32"])
            wanted = {"architecture": NAME, "width": str(pixels.shape[1]), "height": str(pixels.shape[0]), "format_version": "1.0.1"}
            report.equal(f"metadata of {name}", {key: opened.metadata().get(key) for key in wanted}, wanted)
        file = folder / "cache" / f"{name}_{SUFFIX}_te.safetensors"
        report.equal(f"header of {name}", (int.from_bytes(file.read_bytes()[:8], "little") + 8) % 256, 0)
        with safe_open(file, "pt") as opened:
            report.equal(f"texts of {name}", list(opened.keys()), ["ctx_vec_bfloat16"])
            report.equal(f"caption of {name}", opened.metadata()["caption1"], f"caption of {name}")
            report.equal(f"shape of {name}", tuple(opened.get_tensor("ctx_vec_bfloat16").shape), (64, 384))


def accepting(report, program, folder, images):
    """Files of musubi-tuner's layout, made without flux2, are used as they are."""
    config = dataset(folder, images)
    (folder / "cache").mkdir()
    for name, pixels in images.items():
        height, width = pixels.shape[:2]
        metadata = {"architecture": NAME, "width": str(width), "height": str(height), "format_version": "1.0.1"}
        save_file(
            {"latents_4x6_float32": torch.randn(128, 4, 6)},
            folder / "cache" / f"{name}_{width:04d}x{height:04d}_{SUFFIX}.safetensors",
            metadata,
        )
        metadata = {"architecture": NAME, "caption1": f"caption of {name}", "format_version": "1.0.1"}
        states = {"ctx_vec_bfloat16": torch.randn(64, 384).to(torch.bfloat16)}
        save_file(states, folder / "cache" / f"{name}_{SUFFIX}_te.safetensors", metadata)
    result = cached(program, config)
    report.equal("files of the other program", (result["latents"], result["texts"], result["removed"]), (0, 0, 0))


def run(report, program, scratch):
    if not report.wants("training caches"):
        return
    with report.area("training caches"):
        folder = scratch / "training-caches"
        noise = numpy.random.default_rng(5)
        images = {f"i{n}": noise.integers(0, 256, (h, w, 3), dtype=numpy.uint8) for n, (w, h) in enumerate(SIZES)}
        cached(program, dataset(folder / "ours", images))
        scaling(report, program, folder, images)
        reading(report, folder / "ours", images)
        accepting(report, program, folder / "theirs", images)
