"""dev with its Mistral text encoder, on the random model that `models synth --variant dev-tiny` writes."""

import json

import torch
from diffusers import Flux2Transformer2DModel
from safetensors.torch import load_file, save_file
from transformers import Mistral3ForConditionalGeneration, PreTrainedTokenizerFast

from generation import compare_steps

SHORT = "a red fox in the snow, 35mm"
LONG = "the sign says “OPEN 24/7”, don't stop: été, नमस्ते, 日本語 🦊 NaOH\n\n/x  " * 3  # longer than its room


def expected_tokens(folder, prompt):
    """The template as the processor of the published model renders it, cut and padded in front."""
    index = json.loads((folder / "model_index.json").read_text())["flux2"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer/tokenizer.json"), pad_token="<pad>",
                                        padding_side="left", truncation_side="right")
    text = f"<s>[SYSTEM_PROMPT]{index['system_message']}[/SYSTEM_PROMPT][INST]{prompt}[/INST]"
    return tokenizer(text, add_special_tokens=False, padding="max_length", truncation=True, max_length=index["text_length"],
                     return_tensors="pt")


def compare(report, program, folder, name, prompt, model, transformer):
    trace = program.generate("--model", folder, "--seed", 3, "--width", 64, "--height", 96, "--steps", 3, "--guidance", 3.5, prompt)
    tokens = expected_tokens(folder, prompt)
    mask = tokens["attention_mask"][0].bool()
    report.equal(f"{name}: input_ids", trace["text.input_ids"].tolist(), tokens["input_ids"][0].tolist())
    report.equal(f"{name}: attention_mask", trace["text.attention_mask"].tolist(), tokens["attention_mask"][0].tolist())
    with torch.no_grad():
        states = model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], output_hidden_states=True,
                       use_cache=False).hidden_states
    wanted = torch.cat([states[2], states[4], last_state(model, tokens)], dim=-1)[0]
    ours = trace["text.embeddings"]
    report.compare(f"{name}: text states", ours[mask], wanted[mask], 1e-5)
    if not mask.all():
        pads = ours[~mask]
        report.check(f"{name}: all padding is the same", (pads == pads[0]).all().item(), "rows differ")
        report.compare(f"{name}: padding", pads, pad_state(model, 11).expand_as(pads), 1e-5)
    compare_steps(report, name, trace, transformer, guidance=3.5)


def language_model(model):
    return model.model.language_model


def last_state(model, tokens):
    """hidden_states of the last layer is normalised in transformers; the model reads it before that."""
    kept = []

    def keep(_, __, out):
        kept.append(out[0] if isinstance(out, tuple) else out)

    handle = language_model(model).layers[-1].register_forward_hook(keep)
    with torch.no_grad():
        model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], use_cache=False)
    handle.remove()
    return kept[0]


def pad_state(model, pad):
    """A token that sees nothing: only the MLPs change it."""
    text, chosen = language_model(model), []
    x = text.embed_tokens(torch.tensor([[pad]]))
    with torch.no_grad():
        for i, layer in enumerate(text.layers):
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            if i + 1 in (2, 4, 6):
                chosen.append(x)
    return torch.cat(chosen, dim=-1)[0, 0]


def run(report, program, scratch):
    if not report.wants("dev"):
        return
    with report.area("dev"):
        run_all(report, program, scratch)


def run_all(report, program, scratch):
    folder = scratch / "dev-tiny"
    program.run("models", "synth", "--variant", "dev-tiny", "--layout", "diffusers", "--dtype", "f32", "--out", folder)
    transformer = Flux2Transformer2DModel.from_pretrained(folder / "transformer").eval()

    def load():
        return Mistral3ForConditionalGeneration.from_pretrained(folder / "text_encoder", dtype=torch.float32).eval()

    model = load()
    compare(report, program, folder, "short prompt", SHORT, model, transformer)
    compare(report, program, folder, "long prompt", LONG, model, transformer)
    compare(report, program, folder, "empty prompt", "", model, transformer)

    # The same with an embedding of the pad token that is not zero.
    path = folder / "text_encoder/model.safetensors"
    tensors = load_file(path)
    tensors["language_model.model.embed_tokens.weight"][11] = torch.randn(160, generator=torch.Generator().manual_seed(5)) / 50
    save_file(tensors, path, metadata={"format": "pt"})
    compare(report, program, folder, "pad row not zero", SHORT, load(), transformer)

    # Mistral's own names, whose heads are stored in another order.
    own = {}
    names = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
             "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
             "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
    for name, value in tensors.items():
        if not name.startswith("language_model."):
            continue
        short = name.removeprefix("language_model.").removeprefix("model.")
        for theirs, native in names.items():
            short = short.replace(theirs, native)
        short = short.replace("embed_tokens", "tok_embeddings").replace("lm_head", "output")
        if "attention.wq" in short or "attention.wk" in short:
            value = value.reshape(-1, 2, 16, 160).transpose(1, 2).reshape(value.shape).contiguous()
        own[short] = value
    native = scratch / "dev-native"
    native.mkdir()
    save_file(own, native / "consolidated.safetensors")
    (native / "params.json").write_text(json.dumps({"head_dim": 32, "norm_eps": 1e-5, "rope_theta": 1e9}))
    ours = [program.generate("--model", folder, "--seed", 3, "--width", 64, "--height", 64, "--steps", 1, *more, SHORT)
            for more in ([], ["--text-encoder", native / "consolidated.safetensors"])]
    report.compare("Mistral's own names: text states", ours[1]["text.embeddings"], ours[0]["text.embeddings"], 1e-6)
