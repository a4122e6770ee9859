"""GGUF files we write, read by PyPI's gguf package: the same tensors, and from the same blocks the same values."""

import numpy
from safetensors.numpy import load_file

TYPES = ("q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "iq4_xs", "q3_k", "q2_k", "f16", "bf16")


def check_type(report, program, scratch, model, kind):
    import gguf

    file, back = scratch / f"{kind}.gguf", scratch / f"{kind}-back.safetensors"
    program.run("convert", model, "-o", file, "--quant", kind, "--quiet")
    program.run("convert", file, "-o", back, "--quant-rule", ".=f32", "--quiet")
    ours = load_file(back)
    theirs = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(file).tensors}
    report.equal(f"{kind}: names", sorted(theirs), sorted(ours))
    different = [n for n, v in theirs.items() if not numpy.array_equal(v.reshape(ours[n].shape).astype(numpy.float32), ours[n])]
    report.equal(f"{kind}: tensors with other values", different, [])


def run(report, program, scratch):
    if not report.wants("gguf"):
        return
    try:
        import gguf  # noqa: F401
    except ImportError:
        report.skip("gguf", "the package gguf is not installed")
        return
    with report.area("gguf"):
        folder = scratch / "gguf-model"
        program.run("models", "synth", "--variant", "tiny", "--blocks", "1,1", "--dtype", "bf16", "--seed", 1, "--out", folder)
        for kind in TYPES:
            check_type(report, program, scratch, folder, kind)
