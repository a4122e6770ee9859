"""FLUX.2's transformer in PyTorch, stated from its equations: what `flux2` is compared with where diffusers is not
installed, for correctness (tests/parity/full_size.py) and for speed. bf16 weights and activations, f32 inside norms,
softmax and rope, as the reference runs it."""
import math

import torch
import torch.nn.functional as F

HEAD = 128


def sinusoid(argument, dtype):
    """argument: [B], already 1000 times the flow time."""
    k = torch.arange(128, device=argument.device, dtype=torch.float32)
    angle = argument.float()[:, None] * torch.exp(-math.log(10000.0) * k / 128)[None]
    return torch.cat([angle.cos(), angle.sin()], -1).to(dtype)


def rope_table(ids):
    """ids: [N, 4] integers. Returns cos, sin [N, 64] in f32."""
    omega = 2000.0 ** (-torch.arange(16, device=ids.device, dtype=torch.float64) / 16)
    angle = (ids.double()[:, :, None] * omega).reshape(len(ids), 64)
    return angle.cos().float(), angle.sin().float()


def rotate(x, table):
    """x: [B, H, S, 128], pairs (2i, 2i+1)."""
    cos, sin = table
    a, b = x.float().unflatten(-1, (64, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


def rms(x, scale):
    return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * scale


def modulated(x, shift, scale):
    return (1 + scale) * F.layer_norm(x, (x.shape[-1],), eps=1e-6) + shift


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def swiglu(u):
    gate, up = u.chunk(2, -1)
    return F.silu(gate) * up


class Flux2(torch.nn.Module):
    """Weights under their BFL names in a plain dict of tensors."""

    def __init__(self, weights):
        super().__init__()
        self.w = weights
        self.doubles = 1 + max(int(n.split(".")[1]) for n in weights if n.startswith("double_blocks."))
        self.singles = 1 + max(int(n.split(".")[1]) for n in weights if n.startswith("single_blocks."))

    def linear(self, x, name):
        return F.linear(x, self.w[name + ".weight"])

    def heads(self, qkv, norm):
        q, k, v = (t.unflatten(-1, (-1, HEAD)).transpose(1, 2) for t in qkv.chunk(3, -1))
        return rms(q, self.w[norm + "query_norm.scale"]), rms(k, self.w[norm + "key_norm.scale"]), v

    def double(self, i, img, txt, table, mod):
        streams, parts = {"txt": txt, "img": img}, {}
        for s in ("txt", "img"):
            p = f"double_blocks.{i}.{s}_attn."
            parts[s] = self.heads(self.linear(modulated(streams[s], mod[s][0], mod[s][1]), p + "qkv"), p + "norm.")
        q, k, v = (torch.cat([parts["txt"][j], parts["img"][j]], 2) for j in range(3))
        a = attention(rotate(q, table), rotate(k, table), v)
        length = txt.shape[1]
        for s, part in (("txt", a[:, :length]), ("img", a[:, length:])):
            b = f"double_blocks.{i}.{s}_"
            x = streams[s] + mod[s][2] * self.linear(part, b + "attn.proj")
            u = self.linear(modulated(x, mod[s][3], mod[s][4]), b + "mlp.0")
            streams[s] = x + mod[s][5] * self.linear(swiglu(u), b + "mlp.2")
        return streams["img"], streams["txt"]

    def single(self, i, x, table, mod):
        p = f"single_blocks.{i}."
        z = self.linear(modulated(x, mod[0], mod[1]), p + "linear1")
        width = x.shape[-1]
        q, k, v = self.heads(z[..., : 3 * width], p + "norm.")
        a = attention(rotate(q, table), rotate(k, table), v)
        return x + mod[2] * self.linear(torch.cat([a, swiglu(z[..., 3 * width :])], -1), p + "linear2")

    def forward(self, x, argument, ctx, table):
        """x [B, I, 128], argument [B] (1000 t), ctx [B, T, C] → velocity [B, I, 128]."""
        vec = self.linear(F.silu(self.linear(sinusoid(argument, x.dtype), "time_in.in_layer")), "time_in.out_layer")
        m = F.silu(vec)[:, None]
        mod = {s: self.linear(m, f"double_stream_modulation_{s}.lin").chunk(6, -1) for s in ("img", "txt")}
        single = self.linear(m, "single_stream_modulation.lin").chunk(3, -1)
        img, txt = self.linear(x, "img_in"), self.linear(ctx, "txt_in")
        for i in range(self.doubles):
            img, txt = self.double(i, img, txt, table, mod)
        y = torch.cat([txt, img], 1)
        for i in range(self.singles):
            y = self.single(i, y, table, single)
        shift, scale = self.linear(m, "final_layer.adaLN_modulation.1").chunk(2, -1)
        return self.linear(modulated(y[:, txt.shape[1] :], shift, scale), "final_layer.linear")


FP8_LARGEST = 448.0


def to_fp8(x):
    """x [..., K] as e4m3 with a scale for each row: values [M, K] and scales [M, 1]."""
    rows = x.reshape(-1, x.shape[-1])
    scale = rows.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / FP8_LARGEST
    return (rows.float() / scale).clamp(-FP8_LARGEST, FP8_LARGEST).to(torch.float8_e4m3fn), scale


class Fp8Flux2(Flux2):
    """The same with the products of the blocks in e4m3 through torch._scaled_mm: a scale per token and per output, sums as
    the tensor cores make them."""

    def __init__(self, weights):
        in_fp8 = lambda name, w: "blocks." in name and w.dim() == 2
        super().__init__({name: w for name, w in weights.items() if not in_fp8(name, w)} | {
            name: None for name, w in weights.items() if in_fp8(name, w)})
        self.fp8 = {name: to_fp8(w) for name, w in weights.items() if in_fp8(name, w)}

    def linear(self, x, name):
        if name + ".weight" not in self.fp8:
            return super().linear(x, name)
        w, w_scale = self.fp8[name + ".weight"]
        rows, scale = to_fp8(x)
        y = torch._scaled_mm(rows, w.t(), scale_a=scale, scale_b=w_scale.t(), out_dtype=x.dtype, use_fast_accum=True)
        return y.view(*x.shape[:-1], -1)


def positions(text, rows, columns, device):
    ids = torch.zeros(text + rows * columns, 4, dtype=torch.int64, device=device)
    ids[:text, 3] = torch.arange(text, device=device)
    grid = torch.arange(rows * columns, device=device)
    ids[text:, 1], ids[text:, 2] = grid // columns, grid % columns
    return ids
