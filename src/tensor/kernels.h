#pragma once

#include <algorithm>
#include <cstdint>

#include "base/rng.h"

namespace flux2 {

class Tensor;
struct OptimiseArgs;  // tensor/optimiser_kernels.h

// The arguments of each kernel. The op that calls a kernel checks them, so a kernel may trust shapes and dtypes. Unless a comment
// says otherwise, tensors may be strided views whose last axis is contiguous, floats are F32, F64, BF16 or F16 (the same for all
// activations of one call), and sums are F32 (F64 for F64).

enum class Unary { Silu, Exp, Abs, Square };
enum class Binary { Add, Sub, Mul };

struct FillArgs {
  const Tensor& y;
  double value;
};
// Same shape, any strides, any pair of dtypes; block types only as a contiguous source.
struct CopyArgs {
  const Tensor& x;
  const Tensor& y;
};
struct UnaryArgs {
  Unary op;
  const Tensor& x;
  const Tensor& y;
};
struct UnaryGradArgs {
  Unary op;
  const Tensor& x;
  const Tensor& dy;
  const Tensor& dx;
};  // dx = dy · f'(x)
// Same shape, any strides (0 where an operand is broadcast). y may be a or b when their strides agree.
struct BinaryArgs {
  Binary op;
  const Tensor& a;
  const Tensor& b;
  const Tensor& y;
};
struct ScaleArgs {
  const Tensor& x;
  const Tensor& y;
  double factor;
  double offset;
};  // y = factor · x + offset
// y has the rank of x and extent 1 on the axes that are summed. Any strides.
struct SumArgs {
  const Tensor& x;
  const Tensor& y;
};

// y[M, N] = x[M, K] · w[N, K]ᵀ (+ bias[N]). w may have any storage dtype; y is BF16 where x has 8 bits.
struct LinearArgs {
  const Tensor& x;
  const Tensor& w;
  const Tensor* bias;
  const Tensor& y;
};
struct LinearGradInputArgs {
  const Tensor& dy;
  const Tensor& w;
  const Tensor& dx;
};  // dx[M, K] = dy[M, N] · w[N, K]
struct LinearGradWeightArgs {
  const Tensor& dy;
  const Tensor& x;
  const Tensor& dw;
};  // dw[N, K] = dyᵀ · x

// Over the last axis. weight and dweight are vectors; all others have the shape of x.
struct LayerNormArgs {
  const Tensor& x;
  const Tensor& y;
  float eps;
};
struct LayerNormGradArgs {
  const Tensor& x;
  const Tensor& dy;
  const Tensor& dx;
  float eps;
};
struct RmsNormArgs {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& y;
  float eps;
};
// dx and dweight may be null.
struct RmsNormGradArgs {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& dy;
  const Tensor* dx;
  const Tensor* dweight;
  float eps;
};
// x [B, …, C] contiguous, channels last; statistics over all positions and the C / groups channels of a group.
struct GroupNormArgs {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& bias;
  const Tensor& y;
  int groups;
  float eps;
  bool silu;
};
struct GroupNormGradArgs {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& dy;
  const Tensor& dx;
  const Tensor& dweight;
  const Tensor& dbias;
  int groups;
  float eps;
};

// x, y [B, S, H, D]; cosine, sine F32 [S, D/2]. Pairs are (2i, 2i+1) when interleaved, else (i, i + D/2).
// inverse rotates the other way, which is the gradient.
struct RopeArgs {
  const Tensor& x;
  const Tensor& cosine;
  const Tensor& sine;
  const Tensor& y;
  bool interleaved;
  bool inverse;
};

// q, y [B, S, H, D]; k, v [B, T, G, D], query head h reads key head h / (H / G). scale multiplies q·k.
// Key j is visible to query i when (!causal or j <= i + T − S) and (!key_mask or key_mask[b, j] != 0), key_mask I32 [B, T].
// log_sum (optional) receives log Σ exp of the scaled scores, F32 (F64 for F64) [B, H, S], for the gradient.
// With eight_bits, queries, keys, values and probabilities may be rounded to e4m3, where that is fast.
struct AttentionArgs {
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const Tensor& y;
  const Tensor* key_mask;
  const Tensor* log_sum;
  float scale;
  bool causal;
  bool eight_bits = false;
};
struct AttentionGradArgs {
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const Tensor& y;
  const Tensor& log_sum;
  const Tensor& dy;
  const Tensor& dq;
  const Tensor& dk;
  const Tensor& dv;
  const Tensor* key_mask;
  float scale;
  bool causal;
};

struct SwigluArgs {
  const Tensor& gate;
  const Tensor& up;
  const Tensor& y;
};  // y = silu(gate) · up
struct SwigluGradArgs {
  const Tensor& gate;
  const Tensor& up;
  const Tensor& dy;
  const Tensor& dgate;
  const Tensor& dup;
};

// ids I32 [...]; table [V, C] of any storage dtype; y [..., C]. dtable is added to.
struct EmbeddingArgs {
  const Tensor& ids;
  const Tensor& table;
  const Tensor& y;
};
struct EmbeddingGradArgs {
  const Tensor& ids;
  const Tensor& dy;
  const Tensor& dtable;
};

// x [B, H, W, C], w [O, kh, kw, C], y [B, H', W', O], all contiguous. Output (i, j) reads input rows
// i·stride − pad_top …, columns j·stride − pad_left …; what lies outside is zero.
struct ConvShape {
  int stride;
  int pad_top;
  int pad_left;
};
struct Conv2dArgs {
  const Tensor& x;
  const Tensor& w;
  const Tensor* bias;
  const Tensor& y;
  ConvShape conv;
};
struct Conv2dGradInputArgs {
  const Tensor& dy;
  const Tensor& w;
  const Tensor& dx;
  ConvShape conv;
};
struct Conv2dGradWeightArgs {
  const Tensor& dy;
  const Tensor& x;
  const Tensor& dw;
  ConvShape conv;
};

// Nearest neighbour ×2: x [B, H, W, C] → y [B, 2H, 2W, C]; the gradient sums the four copies.
struct UpsampleArgs {
  const Tensor& x;
  const Tensor& y;
};
struct UpsampleGradArgs {
  const Tensor& dy;
  const Tensor& dx;
};

// On devices that multiply in 8 bits (Device::multiplies), these kernels quantise activations. y is contiguous F8_E4M3 or I8 with
// one scale per row, max |row| / 448 or / 127, which is written as well. On such a device `linear` accepts x in both forms, and
// rms_norm, modulated_norm and gated_add_norm may write this form: the result they would have written in the dtype of x, rounded.
struct QuantiseArgs {
  const Tensor& x;
  const Tensor& y;
};  // [M, K] both
// How many rows of plain sums [rows, columns], 4 bytes each, a GPU's 8-bit product makes at a time where it scales them
// afterwards.
inline int64_t rows_of_sums(int64_t rows, int64_t columns) {
  constexpr int64_t kBytes = int64_t{256} << 20, kTile = 256;
  return std::min(rows, std::max<int64_t>(kBytes / (4 * std::max<int64_t>(columns, 1)) / kTile, 1) * kTile);
}
// y[M, W + N] = [x[M, W] ‖ silu(gate) · up]; x may be null, gate and up [M, N].
struct QuantiseSwigluArgs {
  const Tensor* x;
  const Tensor& gate;
  const Tensor& up;
  const Tensor& y;
};

// Fused kernels. A table may leave them null; the op then falls back to its equation.
struct ModulatedNormArgs {
  const Tensor& x;
  const Tensor& shift;
  const Tensor& scale;
  const Tensor& y;
  float eps;
};  // shift, scale [B, 1, C]
// y = residual + conv2d(x), the residual of y's shape and contiguous.
struct Conv2dAddArgs {
  const Tensor& x;
  const Tensor& w;
  const Tensor* bias;
  const Tensor& residual;
  const Tensor& y;
  ConvShape conv;
};
// y [B, 2H, 2W, O] = the 3×3 convolution of upsample(x), padded by one all round; w [O, 3, 3, C].
struct UpsampleConv2dArgs {
  const Tensor& x;
  const Tensor& w;
  const Tensor* bias;
  const Tensor& y;
};
// dx of modulated_norm, plus `sum` where that is given.
struct ModulatedNormGradArgs {
  const Tensor& x;
  const Tensor& scale;
  const Tensor& dy;
  const Tensor* sum;
  const Tensor& dx;
  float eps;
};
// Gradients of the modulation vectors [B, 1, C] of x and dy [B, N, C]: `sums` = Σ dy over the N rows of each sample (null: nobody
// needs it), `products` = Σ dy · x, or Σ dy · n if `normed`, n being the rows of x with mean 0 and variance 1. Both contiguous.
struct ModulationGradArgs {
  const Tensor& dy;
  const Tensor& x;
  const Tensor* sums;
  const Tensor& products;
  bool normed;
  float eps;
};
struct GatedAddArgs {
  const Tensor& x;
  const Tensor& gate;
  const Tensor& z;
  const Tensor& y;
};  // y = x + gate · z, gate [B, 1, C]
// sum = x + gate · z, y = (1 + scale) · layer_norm(sum) + shift; gate, shift, scale [B, 1, C].
struct GatedAddNormArgs {
  const Tensor& x;
  const Tensor& gate;
  const Tensor& z;
  const Tensor& shift;
  const Tensor& scale;
  const Tensor& sum;
  const Tensor& y;
  float eps;
};
// y[M, N] = silu(gate) · up, where [gate up] = x[M, K] · w[2N, K]ᵀ.
struct LinearSwigluArgs {
  const Tensor& x;
  const Tensor& w;
  const Tensor& y;
};
// y = rope(rms_norm(x)): x, y [B, S, H, D], weight [D], cosine and sine F32 [S, D/2] as in RopeArgs.
// The second half of the heads (keys beside queries) is weighted by second_weight where that is given.
struct NormRopeArgs {
  const Tensor& x;
  const Tensor& weight;
  const Tensor* second_weight;
  const Tensor& cosine;
  const Tensor& sine;
  const Tensor& y;
  float eps;
  bool interleaved;
};
// dx of norm_rope.
struct NormRopeGradArgs {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& cosine;
  const Tensor& sine;
  const Tensor& dy;
  const Tensor& dx;
  float eps;
  bool interleaved;
};
// y[M, N] += factor · x[M, K] · w, where w is [N, K] as in LinearArgs, or [K, N] when not transposed. w may have any storage
// dtype.
struct ProductAddArgs {
  const Tensor& x;
  const Tensor& w;
  const Tensor& y;
  double factor;
  bool transposed;
};

// The gradients of an adapter y = inner · upᵀ that read dy [M, N], inner [M, r], up [N, r]: du[M, r] = factor · dy · up and
// dup[N, r] = dyᵀ · inner. dup has its own dtype.
struct AdapterGradArgs {
  const Tensor& dy;
  const Tensor& inner;
  const Tensor& up;
  const Tensor& du;
  const Tensor& dup;
  double factor;
};

// y, contiguous F32: the output of PyTorch's generator on that GPU, bit-identical if y is on a GPU.
struct TorchNormalArgs {
  const Tensor& y;
  uint64_t seed;
  CudaGeometry gpu;
};

// The kernels of a device. The scalar CPU table is complete. Other tables start as a copy of a simpler one and replace the
// entries they can do better, once, when the device is opened.
struct Kernels {
  void (*fill)(const FillArgs&) = nullptr;
  void (*copy)(const CopyArgs&) = nullptr;
  void (*unary)(const UnaryArgs&) = nullptr;
  void (*unary_grad)(const UnaryGradArgs&) = nullptr;
  void (*binary)(const BinaryArgs&) = nullptr;
  void (*scale)(const ScaleArgs&) = nullptr;
  void (*sum)(const SumArgs&) = nullptr;
  void (*linear)(const LinearArgs&) = nullptr;
  void (*linear_grad_input)(const LinearGradInputArgs&) = nullptr;
  void (*linear_grad_weight)(const LinearGradWeightArgs&) = nullptr;
  void (*layer_norm)(const LayerNormArgs&) = nullptr;
  void (*layer_norm_grad)(const LayerNormGradArgs&) = nullptr;
  void (*rms_norm)(const RmsNormArgs&) = nullptr;
  void (*rms_norm_grad)(const RmsNormGradArgs&) = nullptr;
  void (*group_norm)(const GroupNormArgs&) = nullptr;
  void (*group_norm_grad)(const GroupNormGradArgs&) = nullptr;
  void (*rope)(const RopeArgs&) = nullptr;
  void (*attention)(const AttentionArgs&) = nullptr;
  void (*attention_grad)(const AttentionGradArgs&) = nullptr;
  void (*swiglu)(const SwigluArgs&) = nullptr;
  void (*swiglu_grad)(const SwigluGradArgs&) = nullptr;
  void (*embedding)(const EmbeddingArgs&) = nullptr;
  void (*embedding_grad)(const EmbeddingGradArgs&) = nullptr;
  void (*conv2d)(const Conv2dArgs&) = nullptr;
  void (*conv2d_grad_input)(const Conv2dGradInputArgs&) = nullptr;
  void (*conv2d_grad_weight)(const Conv2dGradWeightArgs&) = nullptr;
  void (*upsample)(const UpsampleArgs&) = nullptr;
  void (*upsample_grad)(const UpsampleGradArgs&) = nullptr;
  void (*conv2d_add)(const Conv2dAddArgs&) = nullptr;
  void (*upsample_conv2d)(const UpsampleConv2dArgs&) = nullptr;
  void (*modulated_norm)(const ModulatedNormArgs&) = nullptr;
  void (*modulated_norm_grad)(const ModulatedNormGradArgs&) = nullptr;
  void (*modulation_grad)(const ModulationGradArgs&) = nullptr;
  void (*gated_add)(const GatedAddArgs&) = nullptr;
  void (*gated_add_norm)(const GatedAddNormArgs&) = nullptr;
  void (*linear_swiglu)(const LinearSwigluArgs&) = nullptr;
  void (*quantise)(const QuantiseArgs&) = nullptr;
  void (*quantise_swiglu)(const QuantiseSwigluArgs&) = nullptr;
  void (*norm_rope)(const NormRopeArgs&) = nullptr;
  void (*norm_rope_grad)(const NormRopeGradArgs&) = nullptr;
  void (*product_add)(const ProductAddArgs&) = nullptr;
  void (*adapter_grad)(const AdapterGradArgs&) = nullptr;
  void (*torch_normal)(const TorchNormalArgs&) = nullptr;
  void (*optimise)(const OptimiseArgs&) = nullptr;
};

}  // namespace flux2
