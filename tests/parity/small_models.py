"""Random small models, written by diffusers and transformers themselves, and how those read them back."""

import dataclasses
import json
import math

import torch
from diffusers import AutoencoderKLFlux2, FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline, Flux2Transformer2DModel
from transformers import Qwen3Config, Qwen3ForCausalLM

from qwen_tokenizer import train_tokenizer


@dataclasses.dataclass
class Geometry:
    name: str
    heads: int = 1
    double_blocks: int = 1
    single_blocks: int = 1
    encoder_widths: tuple = (32, 32, 64, 64)
    decoder_widths: tuple | None = None
    text_hidden: int = 32
    text_heads: tuple = (4, 2, 16)  # heads, key/value heads, head width
    text_layers: tuple = (1, 2, 3)  # states read
    text_length: int = 112
    distilled: bool = True
    guidance_embedding: bool = False
    bf16: bool = False

    @property
    def text_width(self):
        return self.text_hidden * len(self.text_layers)


def randomise(model, generator):
    """Values under which no signal explodes or vanishes, and none is the neutral one a bug could hide behind."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.ndim > 1:
                p.copy_(noise / math.sqrt(p[0].numel()) if "embed_tokens" not in name else noise)
            elif name.endswith("bias"):
                p.copy_(0.1 * noise)
            else:
                p.copy_(1 + 0.2 * noise)
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(0.3 * torch.randn(b.shape, generator=generator))
            elif name.endswith("running_var"):
                b.copy_(0.5 + 1.5 * torch.rand(b.shape, generator=generator))


def round_to_bf16(model):
    """Weights as a bf16 file holds them. The latents' statistics stay exact: rounding them shifts every latent."""
    for p in model.parameters():
        p.data = p.data.to(torch.bfloat16)
    return model


def make_transformer(g):
    return Flux2Transformer2DModel(
        num_layers=g.double_blocks,
        num_single_layers=g.single_blocks,
        num_attention_heads=g.heads,
        joint_attention_dim=g.text_width,
        guidance_embeds=g.guidance_embedding,
    )


def make_vae(g):
    return AutoencoderKLFlux2(block_out_channels=g.encoder_widths, decoder_block_out_channels=g.decoder_widths)


def make_text_encoder(g, vocabulary):
    heads, kv_heads, head_dim = g.text_heads
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=g.text_hidden,
            intermediate_size=3 * g.text_hidden,
            num_hidden_layers=max(g.text_layers) + 1,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            rope_theta=1e6,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
        )
    )


def make_scheduler():
    return FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True, time_shift_type="exponential")


def write_model(g, folder, seed):
    """A folder as Flux2KleinPipeline.save_pretrained writes it; with guidance embedding, transformer and VAE alone."""
    generator = torch.Generator().manual_seed(seed)
    parts = {"transformer": make_transformer(g), "vae": make_vae(g)}
    if not g.guidance_embedding:
        tokenizer = train_tokenizer(seed)
        parts["text_encoder"] = make_text_encoder(g, len(tokenizer) + 7)
    for part in parts.values():
        randomise(part, generator)
        if g.bf16:
            round_to_bf16(part)
    if g.guidance_embedding:
        for name, part in parts.items():
            part.save_pretrained(folder / name)
        return folder
    pipeline = Flux2KleinPipeline(
        scheduler=make_scheduler(), tokenizer=tokenizer, is_distilled=g.distilled, **parts
    )
    pipeline.save_pretrained(folder)
    if (g.text_layers, g.text_length) != ((9, 18, 27), 512):
        # What diffusers is told by the arguments of each call.
        index = json.loads((folder / "model_index.json").read_text())
        index["flux2"] = {"text_length": g.text_length, "text_layers": list(g.text_layers)}
        (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def load_pipeline(folder):
    pipeline = Flux2KleinPipeline.from_pretrained(folder, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def load_transformer(folder):
    return Flux2Transformer2DModel.from_pretrained(folder / "transformer", dtype=torch.float32)


def load_vae(folder):
    return AutoencoderKLFlux2.from_pretrained(folder / "vae", dtype=torch.float32)
