#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cpp from Python's unicodedata.

usage: make_unicode_tables.py > src/text/unicode_tables.cpp

Hangul syllables are left out: unicode.cpp composes and decomposes them by arithmetic.
"""
import sys
import unicodedata

HANGUL = range(0xAC00, 0xD7A4)
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]

# The White_Space property, which unicodedata does not expose (str.isspace() adds U+001C..U+001F).
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
               0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def char_class(c):
    if c in WHITE_SPACE:
        return "Space"
    return {"L": "Letter", "N": "Number"}.get(unicodedata.category(chr(c))[0])


def casing(c):
    category = unicodedata.category(chr(c))
    if category in ("Lu", "Lt"):
        return "Upper"
    if category == "Ll":
        return "Lower"
    return "Neither" if category[0] in "LM" else None


def runs(value_of):
    """(first, last, value) of every longest run of code points with the same value, those without value left out."""
    out = []
    for c in CODE_POINTS:
        value = value_of(c)
        if not value:
            continue
        if out and out[-1][1] == c - 1 and out[-1][2] == value:
            out[-1][1] = c
        else:
            out.append([c, c, value])
    return out


def canonical_decompositions():
    """(code point, first, second) of one decomposition step; second is 0 where a single code point is replaced."""
    out = []
    for c in CODE_POINTS:
        mapping = unicodedata.decomposition(chr(c))
        if mapping and not mapping.startswith("<") and c not in HANGUL:
            parts = [int(p, 16) for p in mapping.split()]
            out.append((c, parts[0], parts[1] if len(parts) == 2 else 0))
    return out


def table(declaration, entries):
    print(f"\nconst {declaration} = {{")
    line = " "
    for entry in entries:
        if len(line) + len(entry) + 2 > 120:
            print(line)
            line = " "
        line += f" {entry},"
    print(f"{line}\n}};")


def main():
    decompositions = canonical_decompositions()
    # A pair composes again exactly when its composite is its own NFC form: that leaves the exclusions out.
    composing = [i for i, (c, _, second) in enumerate(decompositions)
                 if second and unicodedata.normalize("NFC", chr(c)) == chr(c)]
    composing.sort(key=lambda i: decompositions[i][1:])

    script = sys.argv[0].split("/")[-1]
    print(f"// Written by scripts/{script} from Unicode {unicodedata.unidata_version}; do not edit.")
    print('#include "text/unicode_tables.h"\n\nnamespace flux2::unicode_tables {\n\nnamespace {\n')
    print("constexpr CharClass L = CharClass::Letter, N = CharClass::Number, S = CharClass::Space;")
    print("constexpr Casing kU = Casing::Upper, kL = Casing::Lower, kN = Casing::Neither;")
    table("ClassRange kClassData[]", [f"{{0x{a:X}, 0x{b:X}, {v[0]}}}" for a, b, v in runs(char_class)])
    table("CasingRange kCasingData[]", [f"{{0x{a:X}, 0x{b:X}, k{v[0]}}}" for a, b, v in runs(casing)])
    table("CombiningRange kCombiningData[]",
          [f"{{0x{a:X}, 0x{b:X}, {v}}}" for a, b, v in runs(lambda c: unicodedata.combining(chr(c)))])
    table("Decomposition kDecompositionData[]", [f"{{0x{c:X}, 0x{a:X}, 0x{b:X}}}" for c, a, b in decompositions])
    table("uint16_t kComposingData[]", [str(i) for i in composing])
    print("\n}  // namespace\n")
    for name, kind in (("Class", "ClassRange"), ("Casing", "CasingRange"), ("Combining", "CombiningRange"),
                       ("Decomposition", "Decomposition"), ("Composing", "uint16_t")):
        plural = {"Class": "Classes", "Casing": "Casings", "Decomposition": "Decompositions"}.get(name, name)
        print(f"const std::span<const {kind}> k{plural} = k{name}Data;")
    print("\n}  // namespace flux2::unicode_tables")


if __name__ == "__main__":
    main()
