"""A dev model that looks at images: `prompt describe` against transformers, word for word, without sampling."""

import json
import pathlib
import subprocess

import numpy
import torch
from PIL import Image
from transformers import Mistral3ForConditionalGeneration, PreTrainedTokenizerFast
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

TOKENS = 16
INSTRUCTIONS = pathlib.Path(__file__).resolve().parents[2] / "src/rewrite/instructions/caption.txt"


def write_image(path, seed, width, height):
    values = numpy.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=numpy.uint8)
    Image.fromarray(values).resize((width, height)).save(path)


def answer_of(program, folder, image):
    """What the program prints, and whether it refused the answer because a random model wrote control characters."""
    done = subprocess.run(
        [str(program.path), "prompt", "describe", str(image), "-m", str(folder), "--upsample", "local", "--upsample-params",
         '{"temperature": 0}', "--upsample-max-tokens", str(TOKENS), "--profile", "exact", "--device", "cpu", "--json"],
        capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        return json.loads(done.stdout)["description"], False
    return done.stderr, "the language model answered" in done.stderr


def expected_answer(model, tokenizer, processor, image):
    made = processor(Image.open(image), return_tensors="pt")
    tall, wide = (int(n) for n in made["image_sizes"][0])
    rows, columns = tall // 28, wide // 28
    lines = "[IMG_BREAK]".join(["[IMG]" * columns] * rows) + "[IMG_END]"
    system = INSTRUCTIONS.read_text().strip()
    text = f"<s>[SYSTEM_PROMPT]{system}[/SYSTEM_PROMPT][INST]{lines}Describe this image.[/INST]"
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=made["pixel_values"].float(),
                             image_sizes=made["image_sizes"], max_new_tokens=TOKENS, do_sample=False, eos_token_id=2, pad_token_id=11)
    return (rows, columns), tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True, clean_up_tokenization_spaces=False)


def shown(text):
    """What the program prints of an answer that ends at the limit of its length: the clean-up of older versions of transformers, no
    spaces or quotes around it, and no unfinished sentence."""
    for loose, tight in ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"),
                         (" 've", "'ve"), (" 're", "'re")):
        text = text.replace(loose, tight)
    text = text.strip()
    for quote in "\"'":
        if len(text) > 1 and text[0] == text[-1] == quote and quote not in text[1:-1]:
            text = text[1:-1].strip()
    stop = max(text.rfind(mark) for mark in ".!?")
    return text[:stop + 1] if stop >= 0 else text


def run(report, program, scratch):
    if not report.wants("vision"):
        return
    with report.area("vision"):
        run_all(report, program, scratch)


def run_all(report, program, scratch):
    compared = 0
    for seed in range(4):
        folder = scratch / f"dev-vision-{seed}"
        program.run("models", "synth", "--variant", "dev-tiny", "--layout", "diffusers", "--dtype", "f32", "--seed", seed, "--out", folder)
        model = Mistral3ForConditionalGeneration.from_pretrained(folder / "text_encoder", dtype=torch.float32).eval()
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer/tokenizer.json"), pad_token="<pad>")
        processor = PixtralImageProcessorPil(size={"longest_edge": 224}, patch_size={"height": 28, "width": 28})
        for name, width, height in (("3x2", 50, 80), ("5x7", 190, 130)):
            image = scratch / f"vision-{seed}-{name}.png"
            write_image(image, seed, width, height)
            grid, theirs = expected_answer(model, tokenizer, processor, image)
            report.equal(f"model {seed}, {name}: grid", "{}x{}".format(*grid), name)
            ours, refused = answer_of(program, folder, image)
            if refused:
                control = any(ord(c) < 32 and c not in "\n\t\r" for c in theirs) or not theirs.strip()
                report.check(f"model {seed}, {name}: refused", control, f"{ours!r} for {theirs!r}")
                continue
            compared += 1
            report.equal(f"model {seed}, {name}: text", ours, shown(theirs))
    report.check("some answers were texts", compared > 0, "all were refused")
