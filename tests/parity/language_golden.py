"""Writes reference values of language models for unit tests: python language_golden.py tests/golden

sampling.json: scores, and the probabilities that transformers' processors leave of them.
language/: small random models of both families, and the tokens that transformers generates with them without sampling.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers.generation import logits_process as processors


def sampling_cases():
    generator = torch.Generator().manual_seed(7)
    cases = []
    for count in (5, 48):
        for penalty, temperature, top_k, top_p, min_p in (
            (1.0, 1.0, 0, 1.0, 0.0), (1.0, 0.15, 50, 1.0, 0.0), (1.0, 0.7, 20, 0.8, 0.0), (1.0, 0.7, 50, 0.9, 0.0),
            (1.0, 0.6, 20, 0.95, 0.0), (1.3, 0.7, 10, 0.9, 0.05), (1.0, 1.5, 0, 0.5, 0.0), (1.2, 1.0, 3, 1.0, 0.2),
            (1.0, 1.0, 0, 0.99, 0.3), (1.0, 2.0, 4, 0.3, 0.0), (0.8, 1.0, 0, 1.0, 0.0)):
            scores = torch.round(torch.randn(1, count, generator=generator) * 3 * 64) / 64
            before = torch.randint(0, count, (1, 6), generator=generator)
            steps = processors.LogitsProcessorList()
            if penalty != 1:
                steps.append(processors.RepetitionPenaltyLogitsProcessor(penalty))
            if temperature != 1:
                steps.append(processors.TemperatureLogitsWarper(temperature))
            if top_k:
                steps.append(processors.TopKLogitsWarper(top_k))
            if top_p < 1:
                steps.append(processors.TopPLogitsWarper(top_p))
            if min_p:
                steps.append(processors.MinPLogitsWarper(min_p))
            probabilities = torch.softmax(steps(before, scores.clone()).double(), -1)
            cases.append({"repetition_penalty": penalty, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
                          "scores": scores[0].tolist(), "before": before[0].tolist(), "probabilities": probabilities[0].tolist()})
    return cases


def small_model(family, tied):
    common = dict(vocab_size=320, hidden_size=48, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=16, max_position_embeddings=512, tie_word_embeddings=tied)
    torch.manual_seed(11 if tied else 12)
    if family == "qwen3":
        config = transformers.Qwen3Config(rms_norm_eps=1e-6, rope_theta=1e6, **common)
        model = transformers.Qwen3ForCausalLM(config)
    else:
        config = transformers.MistralConfig(rms_norm_eps=1e-5, rope_theta=1e9, sliding_window=None, **common)
        model = transformers.MistralForCausalLM(config)
    # Small initial values give states that hardly depend on the tokens: larger ones tell mistakes apart.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
            else:
                parameter.copy_(0.3 * torch.randn_like(parameter))
    return model.eval().float()


def write_model(folder, name, family, tied):
    model = small_model(family, tied)
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.detach().contiguous() for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}
    save_file(tensors, place / "model.safetensors")
    config = model.config.to_dict()
    kept = ("architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "max_position_embeddings")
    written = {k: config[k] for k in kept if k in config}
    written["rope_theta"] = 1e6 if family == "qwen3" else 1e9
    written["architectures"] = [type(model).__name__]
    (place / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    runs = []
    for seed, length in ((1, 1), (2, 5), (3, 40), (4, 130)):
        ids = torch.randint(0, 320, (1, length), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            scores = model(ids).logits[0, -1]
            made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, do_sample=False, eos_token_id=None,
                                  pad_token_id=0)
        runs.append({"ids": ids[0].tolist(), "scores": [round(x, 6) for x in scores.tolist()], "made": made[0, length:].tolist()})
    return {"model": name, "family": family, "runs": runs}


def main():
    folder = pathlib.Path(sys.argv[1])
    (folder / "sampling.json").write_text(json.dumps(sampling_cases()) + "\n")
    language = folder / "language"
    language.mkdir(exist_ok=True)
    runs = [write_model(language, "qwen3-tied", "qwen3", True), write_model(language, "qwen3", "qwen3", False),
            write_model(language, "mistral", "mistral", False)]
    (language / "greedy.json").write_text(json.dumps(runs) + "\n")


if __name__ == "__main__":
    main()
