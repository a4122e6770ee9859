"""`flux2 tokenize` against the tokenizers library, on thousands of random texts."""

import os

from tokenizers import Tokenizer

from qwen_tokenizer import random_texts, train_tokenizer


def compare(report, program, name, folder, texts):
    theirs = [e.ids for e in Tokenizer.from_file(f"{folder}/tokenizer.json").encode_batch(texts, add_special_tokens=False)]
    ours = [line["ids"] for line in program.tokenize(texts, "--tokenizer", folder)]
    report.equal(f"{name}: lines", len(ours), len(texts))
    wrong = [(text, a, b) for text, a, b in zip(texts, ours, theirs) if a != b]
    report.check(f"{name}: {len(texts)} texts", not wrong, f"{len(wrong)} differ; text, ours, theirs of one: {wrong[:1]}")


def run(report, program, scratch):
    if report.wants("tokens trained"):
        for seed in (1, 2):
            with report.area(f"tokens trained {seed}"):
                folder = scratch / f"tokenizer-{seed}"
                train_tokenizer(seed, vocabulary=600 + 700 * seed).save_pretrained(folder)
                compare(report, program, f"trained tokenizer {seed}", folder, random_texts(100 + seed, 2500))
    if report.wants("tokens qwen3"):
        folder = os.environ.get("FLUX2_QWEN3_TOKENIZER")
        if not folder:
            return report.skip("tokens qwen3", "FLUX2_QWEN3_TOKENIZER names no folder with the published tokenizer")
        with report.area("tokens qwen3"):
            compare(report, program, "Qwen3 tokenizer", os.path.abspath(folder), random_texts(7, 5000))
