"""`flux2 safety check` against transformers: the image classifier, and the yes/no answers of language models."""

import json
import math
import pathlib
import subprocess

import numpy
import torch
from PIL import Image
from transformers import Mistral3ForConditionalGeneration, PreTrainedTokenizerFast, ViTConfig, ViTForImageClassification
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

from classifier_golden import resized

TOLERANCE = 1e-5
INSTRUCTIONS = pathlib.Path(__file__).resolve().parents[2] / "src/rewrite/instructions"


def checked(program, *words):
    done = subprocess.run([str(program.path), "safety", "check", "--json", "--device", "cpu", "--profile", "exact", *map(str, words)],
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    if done.returncode not in (0, 9):
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)["results"]


def random_image(path, seed, mode, width, height):
    channels = len(mode)
    values = numpy.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=numpy.uint8)
    Image.fromarray(values[:, :, 0] if channels == 1 else values, mode).save(path)


def check_classifier(report, program, folder, name, sizes):
    torch.manual_seed(len(name))
    config = ViTConfig(id2label={0: "normal", 1: "nsfw"}, label2id={"normal": 0, "nsfw": 1}, **sizes)
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # the usual start is so small that every score would be 0.5
            parameter.add_(torch.randn_like(parameter) * (0.02 if sizes["hidden_size"] > 100 else 0.2))
    model.save_pretrained(folder / name)
    for seed, (mode, width, height) in enumerate((("RGB", 224, 224), ("RGB", 640, 200), ("RGBA", 100, 150), ("L", 50, 300))):
        path = folder / f"{name}-{seed}.png"
        random_image(path, seed, mode, width, height)
        side = config.image_size
        small = numpy.asarray(resized(Image.open(path).convert("RGB"), side, side, Image.Resampling.BILINEAR)).astype(numpy.float32)
        values = (torch.from_numpy(small / 255) - 0.5) / 0.5
        with torch.no_grad():
            theirs = model(values.permute(2, 0, 1)[None]).logits[0].double()
        score = checked(program, path, "--safety-nsfw-model", folder / name)[0]["nsfw"]
        ours = math.log(score / (1 - score))  # of two classes: the difference of the logits
        wanted = (theirs[1] - theirs[0]).item()
        report.check(f"{name}: {mode} {width}x{height}", abs(ours - wanted) <= 2 * TOLERANCE * max(1, abs(wanted)),
                     f"{ours} instead of {wanted}")  # fmt: skip


def text(name):
    return (INSTRUCTIONS / f"{name}.txt").read_text().strip()


def first_logits(model, tokenizer, prompt, **images):
    ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), **images).logits[0, -1]
    return {word: logits[tokenizer(word, add_special_tokens=False)["input_ids"][0]].item() for word in ("yes", "no")}


def same_answer(report, name, ours, theirs):
    for word in ("yes", "no"):
        report.check(f"{name}: {word}", abs(ours["answer"][word] - theirs[word]) <= 1e-4 * max(1, abs(theirs[word])),
                     f"{ours['answer'][word]} instead of {theirs[word]}")  # fmt: skip
    report.check(f"{name}: verdict", ours["flagged"] == (theirs["yes"] > theirs["no"]), "the verdicts differ")


def check_answers(report, program, folder):
    for seed in range(2):
        dev = folder / f"dev-{seed}"
        program.run("models", "synth", "--variant", "dev-tiny", "--layout", "diffusers", "--dtype", "f32", "--seed", seed, "--out", dev)
        model = Mistral3ForConditionalGeneration.from_pretrained(dev / "text_encoder", dtype=torch.float32).eval()
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(dev / "tokenizer/tokenizer.json"), pad_token="<pad>")
        processor = PixtralImageProcessorPil(size={"longest_edge": 224}, patch_size={"height": 28, "width": 28})
        start = f"<s>[SYSTEM_PROMPT]{text('safety')}[/SYSTEM_PROMPT][INST]"
        for prompt in ("a red fox", "a portrait of an old man, 35mm"):
            theirs = first_logits(model, tokenizer, start + text("safety_prompt").replace("{prompt}", prompt) + "[/INST]")
            ours = checked(program, "--prompt", prompt, "-m", dev, "--safety-text", "mistral")[0]
            same_answer(report, f"prompt, model {seed}", ours, theirs)
        ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32,
                                            patch_size=8, id2label={0: "normal", 1: "nsfw"})).save_pretrained(folder / "clean")  # fmt: skip
        for width, height in ((80, 50), (700, 300)):
            path = folder / "seen.png"
            random_image(path, seed, "RGB", width, height)
            image = Image.open(path)
            factor = math.sqrt(512 * 512 / (width * height))
            made = processor(resized(image, int(factor * width), int(factor * height), Image.Resampling.BICUBIC), return_tensors="pt")
            tall, wide = (int(n) for n in made["image_sizes"][0])
            lines = "[IMG_BREAK]".join(["[IMG]" * (wide // 28)] * (tall // 28)) + "[IMG_END]"
            asked = start + text("safety_image") + lines + text("safety_image_question") + "[/INST]"
            theirs = first_logits(model, tokenizer, asked, pixel_values=made["pixel_values"].float(), image_sizes=made["image_sizes"])
            ours = checked(program, path, "-m", dev, "--safety-image", "nsfw+mistral", "--safety-nsfw-threshold", 1,
                           "--safety-nsfw-model", folder / "clean")[0]  # fmt: skip
            same_answer(report, f"image {width}x{height}, model {seed}", ours, theirs)


def run(report, program, scratch):
    folder = scratch / "classifier"
    folder.mkdir()
    small = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "image_size": 64, "patch_size": 8}
    full = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "image_size": 224, "patch_size": 16}
    for name, sizes in (("small", small), ("full", full)):
        area = f"safety classifier {name}"
        if report.wants(area):
            with report.area(area):
                check_classifier(report, program, folder, name, sizes)
    if report.wants("safety answers"):
        with report.area("safety answers"):
            check_answers(report, program, folder)
