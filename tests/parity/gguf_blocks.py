"""Writes tests/golden/gguf-blocks.gguf with PyPI's gguf package: python gguf_blocks.py tests/golden/gguf-blocks.gguf

random.TYPE   blocks of random bytes with sensible half floats; decoded.TYPE what the package makes of them, in F32
input.NAME    matrices to quantise; package.TYPE.NAME what the package makes of them, for the types it writes
"""

import sys

import gguf
import numpy
from gguf import GGMLQuantizationType as Type

HALVES = {  # offsets of half floats in a block
    Type.Q4_0: (0,), Type.Q4_1: (0, 2), Type.Q5_0: (0,), Type.Q5_1: (0, 2), Type.Q8_0: (0,), Type.IQ4_NL: (0,),
    Type.Q2_K: (80, 82), Type.Q3_K: (108,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,), Type.IQ4_XS: (0,),
}
WRITTEN = (Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0)
ROWS, COLUMNS = 8, 512


def random_blocks(kind, random):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=numpy.uint8)
    for offset in HALVES[kind]:
        halves = random.normal(0, 0.05, len(blocks)).astype(numpy.float16)
        blocks[:, offset:offset + 2] = halves.view(numpy.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, -1)


def main():
    random = numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(sys.argv[1], "flux")
    writer.add_string("general.name", "blocks of every type")
    for kind in HALVES:
        blocks = random_blocks(kind, random)
        writer.add_tensor(f"random.{kind.name}", blocks, raw_dtype=kind)
        writer.add_tensor(f"decoded.{kind.name}", gguf.quants.dequantize(blocks, kind).astype(numpy.float32))
    inputs = {
        "normal": random.normal(0, 1, (ROWS, COLUMNS)),
        # As the weights of a trained layer: rows of different size, a few large values.
        "weights": random.standard_t(5, (ROWS, COLUMNS)) * 0.02 * numpy.exp(random.normal(0, 0.5, (ROWS, 1))),
    }
    for name, values in inputs.items():
        values = values.astype(numpy.float32)
        writer.add_tensor(f"input.{name}", values)
        for kind in WRITTEN:
            writer.add_tensor(f"package.{kind.name}.{name}", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
