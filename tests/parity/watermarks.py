"""The invisible watermark against the Python library invisible-watermark: it reads ours, and we read what it writes."""

import json

import numpy as np
from imwatermark.maxDct import EmbedMaxDct
from PIL import Image

FLUX = [int(bit) for bit in f"{0x2AFE879CF52E:b}"]
SIZES = [("256x256", 11), ("272x304", 12), ("512x256", 13), ("640x640", 14)]


def bgr_of(picture):
    """[3, H, W] of [-1, 1] as the library takes it: levels in float32, blue first."""
    return np.ascontiguousarray((255 * (0.5 * picture + 0.5)).transpose(1, 2, 0)[..., ::-1].astype(np.float32))


def found_by_us(program, file, mark="flux"):
    return json.loads(program.run("inspect", "--json", "--watermark", mark, file))["watermark"]


def run(report, program, scratch):
    if not report.wants("watermarks"):
        return
    with report.area("watermarks"):
        folder = scratch / "watermarks"
        program.run("models", "synth", "--out", folder)
        for size, seed in SIZES:
            common = ("--model", folder, "--size", size, "--steps", 1, "--seed", seed, "--rounding", "trunc")
            plain = program.generate("a fox", *common)["image"].numpy()
            program.run("generate", "a fox", *common, "--profile", "exact", "--device", "cpu", "--time-rounding", "exact",
                        "--watermark", "flux", "-o", "marked.png", "--quiet")  # fmt: skip
            ours = np.asarray(Image.open(scratch / "marked.png").convert("RGB"))

            theirs = EmbedMaxDct(FLUX, wmLen=len(FLUX)).encode(bgr_of(plain))[..., ::-1]
            theirs8 = np.trunc(np.clip(theirs, 0, 255)).astype(np.uint8)
            apart = np.abs(ours.astype(int) - theirs8.astype(int))
            report.check(f"watermark {size}: pixels", apart.max() <= 1 and (apart > 0).mean() < 1e-3,
                         f"{apart.max()} levels apart, {(apart > 0).mean():.1e} of all samples")  # fmt: skip

            read = EmbedMaxDct(wmLen=len(FLUX)).decode(np.ascontiguousarray(ours[..., ::-1].astype(np.float32)))
            matched = int((read == np.array(FLUX, bool)).sum())
            mine = found_by_us(program, scratch / "marked.png")["matched"]  # smooth images lose a few bits in both programs
            report.check(f"watermark {size}: both read the same in ours", matched == mine, f"{matched} and {mine} of 46 bits")

            Image.fromarray(theirs8).save(scratch / "theirs.png")
            found = found_by_us(program, scratch / "theirs.png")
            report.check(f"watermark {size}: we read the library's", found["matched"] == matched, str(found))
