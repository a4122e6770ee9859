#include "model/flux2_blocks.h"

#include "autograd/grad.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace flux2 {

namespace {

constexpr int64_t kHeadDim = Flux2Config::kHeadDim;

Tensor joined(const Tensor& own, const Tensor& others) {
  return concat({own, others.expanded(others.shape().with(0, own.dim(0)))}, 1);
}

KeyValue attended(const Tensor& k, const Tensor& v, const Attending& attending) {
  if (attending.own) *attending.own = {k.contiguous(), v.contiguous()};  // k is half of a pair that need not be kept
  if (!attending.others) return {k, v};
  return {joined(k, attending.others->k), joined(v, attending.others->v)};
}

// The image stream y with what its first tokens see of image prompts; qk [B, S, 2H, D] are its queries and keys before norm and
// rope. The queries have no positions, because an image prompt has none.
Tensor with_image_prompts(const Tensor& y, const Tensor& qk, const QkNorm& norm, const Attending& attending) {
  const int64_t heads = qk.dim(2) / 2, targets = attending.targets;
  const Tensor q = rms_norm(contiguous(narrow(narrow(qk, 1, 0, targets), 2, 0, heads)), norm.q_scale);
  Tensor seen;
  for (const KeyValue& prompt : attending.image_prompts) {
    const Tensor a = attention(q, prompt.k, prompt.v);
    seen = seen.defined() ? seen + a : a;
  }
  if (targets == y.dim(1)) return y + seen;
  const auto parts = split(y, {targets, y.dim(1) - targets}, 1);
  return concat({parts[0] + seen, parts[1]}, 1);
}

// The gradient of a gate reads what the gate multiplies.
Values read_by_gradient(const Tensor& gate, Values values) { return wants_grad(gate) ? Values::Needed : values; }

}  // namespace

std::string_view name_of(AttentionBits bits) {
  return bits == AttentionBits::Eight ? "fp8" : bits == AttentionBits::AsWeights ? "auto" : "bf16";
}

AttentionBits attention_named(std::string_view name) {
  for (const AttentionBits bits : {AttentionBits::Sixteen, AttentionBits::Eight, AttentionBits::AsWeights})
    if (name == name_of(bits)) return bits;
  fail(ErrorCode::InvalidArgument, "attention \"{}\" is not one of auto, bf16, fp8", name);
}

AttentionOptions Attending::options(const Linear& layer) const {
  const bool eight = bits == AttentionBits::Eight || (bits == AttentionBits::AsWeights && layer.weight.dtype() == DType::F8_E4M3);
  return {.key_mask = {}, .kept = kept, .groups = groups ? &groups->all : nullptr, .eight_bits = eight};
}

void QkNorm::visit(const std::string& prefix, const ParameterVisitor& visitor) {
  visitor({prefix + "query_norm.scale", q_scale, {kHeadDim}, ParameterKind::Vector, kWhole});
  visitor({prefix + "key_norm.scale", k_scale, {kHeadDim}, ParameterKind::Vector, kWhole});
}

Heads split_heads(const Tensor& qkv) {
  const int64_t width = qkv.dim(2) / 3, heads = width / kHeadDim;
  const auto parts = split(qkv, {2 * width, width});
  const Shape shape{qkv.dim(0), qkv.dim(1), heads, kHeadDim};
  return {reshape(parts[0], shape.with(2, 2 * heads)), reshape(parts[1], shape)};
}

SingleBlock::SingleBlock(const Flux2Config& config, Communicator* ranks)
    : dim(config.hidden), hidden(config.mlp()), in(config.hidden, 3 * dim + 2 * hidden), out(dim + hidden, config.hidden) {
  in.spread = {Spread::Rows, {dim, dim, dim, hidden, hidden}};
  out.spread = {Spread::Columns, {dim, hidden}};
  in.ranks = out.ranks = ranks;
  if (ranks) {
    check(config.heads() % ranks->size() == 0, "{} heads cannot be divided among {} ranks", config.heads(), ranks->size());
    dim /= ranks->size();
    hidden /= ranks->size();
  }
}

// x ← x + gate ⊙ W_out [ attention(q, k, v) ‖ swiglu(u) ]   where [q k v u] = W_in · modulated_norm(x)
Tensor SingleBlock::operator()(const Tensor& x, const Rope& rope, const Modulation& m, const Attending& attending) const {
  Attending how = attending;
  how.values = read_by_gradient(m.gate, attending.values);
  return gated_add(x, m.gate, branch(modulated_norm(x, m.shift, m.scale, {.as = in.takes(x)}), rope, how), how.values);
}

Tensor SingleBlock::branch(const Tensor& n, const Rope& rope, const Attending& attending) const {
  if (in.is_plain() && fuses_swiglu(n, in.weight)) {
    const auto [qk, v] = split_heads(linear(n, in.weight.narrowed(0, 0, 3 * dim)));
    const auto [q, k] = rope.after_norms({norm(qk)});
    const auto [keys, values] = attended(k, v, attending);
    return out(attention_beside_mlp(q, keys, values, n, in.weight.narrowed(0, 3 * dim, 2 * hidden), attending.options(in)));
  }
  const auto parts = split(in(n), {3 * dim, 2 * hidden});
  const auto [qk, v] = split_heads(parts[0]);
  const auto [q, k] = rope.after_norms({norm(qk)});
  const auto [keys, values] = attended(k, v, attending);
  return out(attention_beside_swiglu(q, keys, values, parts[1], out.takes(parts[1]), attending.options(in)), attending.values);
}

KeyValue SingleBlock::keys_and_values(const Tensor& n, const Rope& rope) const {
  const auto parts = split(in.outputs(dim, 2 * dim)(n), {dim, dim});
  const Shape shape{n.dim(0), n.dim(1), dim / kHeadDim, kHeadDim};
  return {rope.after_norm({{reshape(parts[0], shape), norm.k_scale}}), reshape(parts[1], shape)};
}

Tensor SingleBlock::target_branch(const Tensor& n, const Tensor& n_target, const Rope& rope, const Rope& rope_target,
                                  const Attending& attending) const {
  const KeyValue own = keys_and_values(n, rope);
  const auto [keys, values] = attended(own.k, own.v, attending);
  const Shape shape{n_target.dim(0), n_target.dim(1), dim / kHeadDim, kHeadDim};
  const Tensor q = rope_target.after_norm({{reshape(in.outputs(0, dim)(n_target), shape), norm.q_scale}});
  AttentionOptions options = attending.options(in);
  options.groups = attending.groups ? &attending.groups->last : nullptr;
  const Linear mlp = in.outputs(3 * dim, 2 * hidden);
  if (in.is_plain() && fuses_swiglu(n_target, in.weight))
    return out(attention_beside_mlp(q, keys, values, n_target, mlp.weight, options));
  const Tensor u = mlp(n_target);
  return out(attention_beside_swiglu(q, keys, values, u, out.takes(u), options));
}

void SingleBlock::visit(const std::string& prefix, const ParameterVisitor& visitor) {
  in.visit(prefix + "linear1", visitor);
  out.visit(prefix + "linear2", visitor);
  norm.visit(prefix + "norm.", visitor);
}

DoubleStream::DoubleStream(const Flux2Config& config)
    : qkv(config.hidden, 3 * config.hidden),
      proj(config.hidden, config.hidden),
      mlp_in(config.hidden, 2 * config.mlp()),
      mlp_out(config.mlp(), config.hidden) {}

Heads DoubleStream::heads(const Tensor& x, const Modulation& m) const {
  return split_heads(qkv(modulated_norm(x, m.shift, m.scale, {.as = qkv.takes(x)})));
}

Tensor DoubleStream::finish(const Tensor& x, const Tensor& a, const Modulation& attention, const Modulation& mlp,
                            Values values) const {
  const auto [y, n] = gated_add_norm(x, attention.gate, proj(a), mlp.shift, mlp.scale, {.as = mlp_in.takes(x)});
  const Values read = read_by_gradient(mlp.gate, values);
  return gated_add(y, mlp.gate, mlp_out(mlp_in.then_swiglu(n, mlp_out), read), read);
}

void DoubleStream::visit(const std::string& prefix, const ParameterVisitor& visitor) {
  qkv.visit(prefix + "attn.qkv", visitor);
  norm.visit(prefix + "attn.norm.", visitor);
  proj.visit(prefix + "attn.proj", visitor);
  mlp_in.visit(prefix + "mlp.0", visitor);
  mlp_out.visit(prefix + "mlp.2", visitor);
}

DoubleBlock::Streams DoubleBlock::operator()(const Streams& x, const Rope& rope, const Modulations& img_mod,
                                             const Modulations& txt_mod, const Attending& attending) const {
  const Heads t = txt.heads(x.txt, txt_mod.attention), i = img.heads(x.img, img_mod.attention);
  const TokenGroups* groups = attending.groups;
  const auto [q, k] =
      rope.after_norms(groups ? groups->joined(txt.norm(t.qk), img.norm(i.qk)) : std::vector{txt.norm(t.qk), img.norm(i.qk)});
  const auto [keys, values] = attended(k, groups ? groups->joined(t.v, i.v) : concat({t.v, i.v}, 1), attending);
  const Tensor a = attention(q, keys, values, attending.options(img.qkv));
  const auto parts = groups ? groups->streams(a) : split(a, {x.txt.dim(1), x.img.dim(1)}, 1);
  const Tensor y = img.finish(x.img, parts[1], img_mod.attention, img_mod.mlp, attending.values);
  return {.img = attending.image_prompts.empty() ? y : with_image_prompts(y, i.qk, img.norm, attending),
          .txt = txt.finish(x.txt, parts[0], txt_mod.attention, txt_mod.mlp, attending.values)};
}

Tensor DoubleBlock::image_only(const Tensor& x, const Rope& rope, const Modulations& m, const Attending& attending) const {
  const Heads i = img.heads(x, m.attention);
  const auto [q, k] = rope.after_norms({img.norm(i.qk)});
  const auto [keys, values] = attended(k, i.v, attending);
  return img.finish(x, attention(q, keys, values, attending.options(img.qkv)), m.attention, m.mlp);
}

void DoubleBlock::visit(const std::string& prefix, const ParameterVisitor& visitor) {
  img.visit(prefix + "img_", visitor);
  txt.visit(prefix + "txt_", visitor);
}

std::vector<Tensor> modulation_chunks(const Tensor& m, int n) { return chunk(reshape(m, {m.dim(0), 1, m.dim(1)}), n); }

DoubleBlock::Modulations split_double_modulation(const Tensor& m) {
  const auto c = modulation_chunks(m, 6);
  return {{c[0], c[1], c[2]}, {c[3], c[4], c[5]}};
}

Modulation split_single_modulation(const Tensor& m) {
  const auto c = modulation_chunks(m, 3);
  return {c[0], c[1], c[2]};
}

}  // namespace flux2
