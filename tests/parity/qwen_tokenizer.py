"""A small byte-level BPE tokenizer of Qwen's layout, and texts that search its corners."""

import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2TokenizerFast

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE_WORDS = ["<think>", "</think>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
WORDS = "a the fox castle lighthouse painting of don't it's WE'LL I'm dusk 3D 4k in on with café naïve Straße été".split()


def train_tokenizer(seed, vocabulary=700):
    """Trained on random texts of the seed: every one has other merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(random_texts(seed, 1500), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in TEMPLATE_WORDS])
    wrapped = Qwen2TokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|endoftext|>", eos_token="<|im_end|>", unk_token=None, bos_token=None
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


# Scripts, marks, digits, symbols and blanks; then emoji.
RANGES = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x5D0, 0x6FF), (0x900, 0x97F), (0xE00, 0xE5F),
    (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F), (0x2190, 0x2BFF), (0x3000, 0x30FF),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0xFF00, 0xFFEF), (0x1D400, 0x1D7FF),
]  # fmt: skip
EMOJI = (0x1F300, 0x1F64F)
BLANKS = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "\u2028", "\x0b", "\x85"]
PIECES = ["'s", "'LL", "'re", "'ſ", "''", "123", "½", "Ⅷ", "...", " -- ", "\x00", "\x7f", "👩‍🚀"]
PIECES += ["e\u0301", "\u1112\u1161\u11ab"]  # to be composed


def random_character(rng):
    # Unicode 3.2 knows them: the libraries' own tables differ in age, above all for combining marks.
    if rng.random() < 0.05:
        return chr(rng.randint(*EMOJI))
    while True:
        c = chr(rng.randint(*rng.choice(RANGES)))
        if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Co", "Cs"):
            return c


def random_texts(seed, count):
    rng = random.Random(seed)
    makers = [
        lambda: rng.choice(WORDS),
        lambda: " " + rng.choice(WORDS),
        lambda: "".join(random_character(rng) for _ in range(rng.randint(1, 6))),
        lambda: rng.choice(BLANKS),
        lambda: rng.choice(PIECES),
        lambda: rng.choice(SPECIAL + TEMPLATE_WORDS) if rng.random() < 0.3 else ",",
    ]
    return ["".join(rng.choice(makers)() for _ in range(rng.randint(0, 24))) for _ in range(count)]
