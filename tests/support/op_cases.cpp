#include "tests/support/op_cases.h"

#include <fmt/format.h>

#include <cmath>

#include "base/rng.h"
#include "nn/rope_table.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/attention_groups.h"
#include "ops/conv2d.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/lora.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/token.h"
#include "ops/view.h"

namespace flux2 {

Tensor random_tensor(Stream& stream, DType dtype, const Shape& shape, uint64_t seed, double spread) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto words = philox(seed, i, 0);
    // Sum of four uniforms: bounded, bell-shaped, and exactly the same on every machine.
    double sum = 0;
    for (uint32_t w : words) sum += w * 0x1p-32 - 0.5;
    values[i] = spread * sum * std::sqrt(3.0);
  }
  return Tensor::from<double>(stream, dtype, shape, values);
}

std::string Difference::str() const {
  return fmt::format("relative {:.3g}; worst at {}: {} against {} (off by {:.3g})", relative, worst_at, a_there, b_there, worst);
}

Difference difference(const std::vector<double>& a, const std::vector<double>& b) {
  Difference d;
  check(a.size() == b.size(), "comparing {} values with {}", a.size(), b.size());
  double square = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double off = std::abs(a[i] - b[i]);
    if (!(off <= d.worst)) d = {0, off, static_cast<int64_t>(i), a[i], b[i]};
    square += off * off;
    norm += b[i] * b[i];
  }
  d.relative = norm > 0 ? std::sqrt(square / norm) : std::sqrt(square);
  if (std::isnan(square)) d.relative = INFINITY;
  return d;
}

Difference difference(const Tensor& a, const Tensor& b) { return difference(a.to_doubles(), b.to_doubles()); }

double tolerance(DType dtype, int64_t terms) {
  const double unit = dtype == DType::F64 ? 0x1p-53 : dtype == DType::F32 ? 0x1p-24 : dtype == DType::F16 ? 0x1p-11 : 0x1p-8;
  // Inputs and outputs round in the dtype, sums in f32 (their errors grow like √terms, four times that is rare).
  const double sums = dtype == DType::F64 ? 0x1p-53 : 0x1p-24;
  return 4 * unit + 4 * sums * std::sqrt(static_cast<double>(terms));
}

namespace {

// A table of angles in the dtype the case runs in, built from fixed positions.
Rope some_rope(const Tensor& like, int64_t length, int64_t width, RopePairs pairs) {
  std::vector<double> cosine, sine;
  for (int64_t s = 0; s < length; ++s)
    for (int64_t p = 0; p < width / 2; ++p) {
      const double angle = 0.37 * static_cast<double>(s) + 0.11 * static_cast<double>(p * s);
      cosine.push_back(std::cos(angle));
      sine.push_back(std::sin(angle));
    }
  const Shape shape{length, width / 2};
  return {Tensor::from<double>(like.stream(), DType::F32, shape, cosine),
          Tensor::from<double>(like.stream(), DType::F32, shape, sine), pairs};
}

Tensor some_mask(const Tensor& like, int64_t batch, int64_t keys, int64_t hidden_from) {
  std::vector<int32_t> mask;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t j = 0; j < keys; ++j) mask.push_back(j < hidden_from + b || j == 0);
  return Tensor::from<int32_t>(like.stream(), DType::I32, {batch, keys}, mask);
}

// Three classes of rows, of which the first sees everything. Their rows lie together or are mixed.
AttentionGroups some_groups(const Tensor& q, const Tensor& k, bool mixed) {
  RowClasses classes{.of_row = {}, .sees = {{true, true, true}, {true, true, false}, {true, false, true}}};
  const int64_t rows = k.dim(1);
  for (int64_t i = 0; i < rows; ++i) classes.of_row.push_back(static_cast<int>(mixed ? i % 3 : 3 * i / rows));
  return group_rows(q.stream(), classes, q.dim(1));
}

class List {
 public:
  void add(OpCase c) { cases_.push_back(std::move(c)); }
  std::vector<OpCase> take() { return std::move(cases_); }

 private:
  std::vector<OpCase> cases_;
};

using Inputs = const std::vector<Tensor>&;

void elementwise(List& list) {
  list.add({"add/same", {{5, 17}, {5, 17}}, [](Inputs x) { return x[0] + x[1]; }});
  list.add({"add/broadcast", {{3, 1, 7}, {4, 1}}, [](Inputs x) { return x[0] + x[1]; }});
  list.add({"subtract/broadcast", {{2, 3}, {3}}, [](Inputs x) { return x[0] - x[1]; }});
  list.add({"multiply/same", {{33}, {33}}, [](Inputs x) { return x[0] * x[1]; }});
  list.add({"multiply/broadcast", {{2, 1, 9}, {2, 5, 9}}, [](Inputs x) { return x[0] * x[1]; }});
  list.add({"affine", {{4, 13}}, [](Inputs x) { return affine(x[0], -1.7, 0.3); }});
  list.add({"gated_add", {{2, 5, 24}, {2, 1, 24}, {2, 5, 24}}, [](Inputs x) { return gated_add(x[0], x[1], x[2]); }});
  for (int64_t n : {1, 16, 37}) {
    list.add({fmt::format("silu/{}", n), {{3, n}}, [](Inputs x) { return silu(x[0]); }});
    list.add({fmt::format("gelu/{}", n), {{3, n}}, [](Inputs x) { return gelu(x[0]); }});
    list.add({fmt::format("swiglu/{}", n), {{3, 2 * n}}, [](Inputs x) { return swiglu(x[0]); }});
  }
  list.add({"linear_swiglu", {{2, 3, 16}, {22, 16}}, [](Inputs x) { return linear_swiglu(x[0], x[1]); }, 16});
  list.add({"swiglu/two", {{3, 11}, {3, 11}}, [](Inputs x) { return swiglu(x[0], x[1]); }});
  list.add({"exp", {{19}}, [](Inputs x) { return exp(x[0]); }});
  list.add({"square", {{19}}, [](Inputs x) { return square(x[0]); }});
  list.add({"abs", {{19}}, [](Inputs x) { return abs(x[0]); }});
  list.add({"sum_to", {{4, 3, 5}}, [](Inputs x) { return sum_to(x[0], {3, 1}); }, 20});
  list.add({.name = "sum_to/tokens",
            .inputs = {{2, 300, 96}},
            .run =
                [](Inputs x) {
                  return sum_to(x[0], {2, 1, 96});
                },
            .terms = 300,
            .differentiable = false});
  list.add({"mean", {{4, 9}}, [](Inputs x) { return mean(x[0]); }, 36});
}

void views(List& list) {
  list.add({"reshape", {{2, 6}}, [](Inputs x) { return reshape(x[0], {3, 4}); }});
  list.add({"permute", {{2, 3, 4}}, [](Inputs x) { return contiguous(permute(x[0], {2, 0, 1})); }});
  list.add({"narrow", {{5, 8}}, [](Inputs x) { return narrow(x[0], 1, 2, 3) * narrow(x[0], 1, 4, 3); }});
  list.add({"split/used twice", {{3, 8}}, [](Inputs x) {
              const auto p = split(x[0], {4, 4});
              return concat({swiglu(p[0], p[1]), swiglu(p[1], p[0]), square(p[0])});
            }});
  list.add({"attention/nested split",
            {{2, 3, 24}},
            [](Inputs x) {
              const auto p = split(x[0], {12, 12});
              const auto q = chunk(p[0], 3);
              const Shape heads{2, 3, 1, 4};
              return attention_beside_swiglu(reshape(q[0], heads), reshape(q[1], heads), reshape(q[2], heads), p[1]);
            },
            8});
  list.add({"split", {{3, 9}}, [](Inputs x) {
              const auto p = split(x[0], {2, 3, 4});
              return concat({square(p[2]), p[0]});  // the middle piece gets no gradient
            }});
  list.add({"concat/rows", {{2, 3, 4}, {2, 2, 4}}, [](Inputs x) { return square(concat({x[0], x[1]}, 1)); }});
  list.add({"chunk/strided norm", {{2, 3, 24}}, [](Inputs x) { return layer_norm(chunk(x[0], 3)[1]); }, 8});
}

void products(List& list) {
  struct Size {
    int64_t m, n, k;
  };
  for (const Size s : {Size{1, 1, 1}, Size{3, 5, 7}, Size{4, 16, 32}, Size{13, 29, 33}, Size{17, 12, 65}})
    list.add({fmt::format("linear/{}x{}x{}", s.m, s.n, s.k),
              {{s.m, s.k}, {s.n, s.k}},
              [](Inputs x) { return linear(x[0], x[1]); },
              s.k});
  list.add({"linear/bias", {{2, 3, 6}, {4, 6}, {4}}, [](Inputs x) { return linear(x[0], x[1], x[2]); }, 6});
  list.add({"linear/uneven rows", {{2, 5, 6}, {4, 6}}, [](Inputs x) { return linear(narrow(x[0], 1, 1, 3), x[1]); }, 6});
  list.add({"linear/strided", {{3, 20}, {4, 6}}, [](Inputs x) { return linear(narrow(x[0], 1, 5, 6), x[1]); }, 6});
  // The weight is frozen, so that the device's own way is taken.
  const auto adapted = [](int64_t n, int64_t k) {
    return [n, k](Inputs x) {
      const Tensor w = random_tensor(x[0].stream(), x[0].dtype(), {n, k}, 7);
      std::vector<Lora> changes;
      for (size_t i = 1; i < x.size(); i += 2) changes.push_back({x[i], x[i + 1], 0.75});
      return lora_linear(x[0], w, {}, changes);
    };
  };
  list.add({"lora_linear", {{2, 3, 8}, {2, 8}, {5, 2}}, adapted(5, 8), 10});
  list.add({"lora_linear/two", {{7, 24}, {4, 24}, {16, 4}, {8, 24}, {16, 8}}, adapted(16, 24), 36});
  list.add({.name = "linear/klein qkv",
            .inputs = {{96, 3072}, {9216, 3072}},
            .run = [](Inputs x) { return linear(x[0], x[1]); },
            .terms = 3072,
            .differentiable = false,
            .large = true,
            .flop = 2.0 * 96 * 3072 * 9216});
}

void norms(List& list) {
  for (int64_t n : {1, 3, 15, 16, 17, 128}) {
    list.add({fmt::format("layer_norm/{}", n), {{5, n}}, [](Inputs x) { return layer_norm(x[0], 1e-3f); }, n});
    list.add({fmt::format("rms_norm/{}", n), {{5, n}, {n}}, [](Inputs x) { return rms_norm(x[0], x[1], 1e-3f); }, n});
  }
  list.add({"modulated_norm",
            {{2, 3, 20}, {2, 1, 20}, {2, 1, 20}},
            [](Inputs x) { return modulated_norm(x[0], x[1], x[2], {.eps = 1e-3f}); },
            20});
  list.add({"modulated_norm/frozen",
            {{2, 3, 24}},
            [](Inputs x) {
              const auto fixed = [&](uint64_t seed) { return random_tensor(x[0].stream(), x[0].dtype(), {2, 1, 24}, seed); };
              return modulated_norm(x[0], fixed(7), fixed(8), {.eps = 1e-3f});
            },
            24});
  // A gradient that has arrived before is added in the norm's kernel, here from a slice.
  list.add({"modulated_norm/residual",
            {{2, 5, 24}},
            [](Inputs x) {
              const auto fixed = [&](uint64_t seed) { return random_tensor(x[0].stream(), x[0].dtype(), {2, 1, 24}, seed); };
              return concat({modulated_norm(x[0], fixed(7), fixed(8), {.eps = 1e-3f}), x[0]}, 1);
            },
            24});
  list.add(
      {"group_norm/one channel", {{2, 3, 4, 8}, {8}, {8}}, [](Inputs x) { return group_norm(x[0], x[1], x[2], 8, 1e-3f); }, 12});
  list.add({"group_norm/three channels",
            {{2, 3, 2, 12}, {12}, {12}},
            [](Inputs x) { return group_norm(x[0], x[1], x[2], 4, 1e-3f); },
            18});
  list.add(
      {"group_norm_silu", {{1, 5, 3, 8}, {8}, {8}}, [](Inputs x) { return group_norm_silu(x[0], x[1], x[2], 4, 1e-3f); }, 30});
  list.add({"gated_add_norm",
            {{2, 3, 20}, {2, 1, 20}, {2, 3, 20}, {2, 1, 20}, {2, 1, 20}},
            [](Inputs x) {
              const auto [sum, normed] = gated_add_norm(x[0], x[1], x[2], x[3], x[4], {.eps = 1e-3f});
              return concat({sum, normed});
            },
            20});
  list.add({.name = "modulated_norm/klein",
            .inputs = {{1, 768, 3072}, {1, 1, 3072}, {1, 1, 3072}},
            .run = [](Inputs x) { return modulated_norm(x[0], x[1], x[2]); },
            .terms = 3072,
            .differentiable = false,
            .large = true});
  // The sizes of a small model in training: narrow rows, many of them, and many images.
  list.add({.name = "rms_norm/heads",
            .inputs = {{300, 5, 4, 32}, {32}},
            .run = [](Inputs x) { return rms_norm(x[0], x[1], 1e-3f); },
            .terms = 6000,
            .differentiable = false});
  list.add({.name = "rms_norm/rows of 128",
            .inputs = {{2999, 128}, {128}},
            .run = [](Inputs x) { return rms_norm(x[0], x[1], 1e-3f); },
            .terms = 2999,
            .differentiable = false});
  list.add({.name = "group_norm/many images",
            .inputs = {{40, 23, 31, 32}, {32}, {32}},
            .run = [](Inputs x) { return group_norm(x[0], x[1], x[2], 8, 1e-3f); },
            .terms = 28520,
            .differentiable = false});
  list.add({.name = "group_norm_silu/vae",
            .inputs = {{1, 64, 64, 128}, {128}, {128}},
            .run = [](Inputs x) { return group_norm_silu(x[0], x[1], x[2]); },
            .terms = 16384,
            .differentiable = false,
            .large = true});
}

void attentions(List& list) {
  const auto rotate = [](RopePairs pairs) {
    return [pairs](Inputs x) { return some_rope(x[0], x[0].dim(1), x[0].dim(3), pairs)(x[0]); };
  };
  list.add({"rope/interleaved", {{2, 5, 3, 16}}, rotate(RopePairs::Interleaved)});
  list.add({"rope/halves", {{2, 5, 3, 16}}, rotate(RopePairs::Halves)});
  list.add({"rope/strided", {{1, 4, 60}}, [](Inputs x) {
              const Tensor q = reshape(narrow(x[0], 2, 20, 20), {1, 4, 2, 10});
              return some_rope(q, 4, 10, RopePairs::Interleaved)(q);
            }});
  for (int64_t d : {10, 128})
    for (RopePairs pairs : {RopePairs::Interleaved, RopePairs::Halves})
      list.add({fmt::format("norm_rope/{} {}", pairs == RopePairs::Halves ? "halves" : "interleaved", d),
                {{2, 5, 3, d}, {d}},
                [pairs, d](Inputs x) {
                  return some_rope(x[0], 5, d, pairs).after_norm({{x[0], x[1]}}, 1e-3f);
                },
                d,
                d == 10});
  for (RopePairs pairs : {RopePairs::Interleaved, RopePairs::Halves})
    list.add({fmt::format("norm_rope/frozen {}", pairs == RopePairs::Halves ? "halves" : "interleaved"),
              {{2, 3, 96}, {2, 4, 96}},
              [pairs](Inputs x) {
                const Tensor a = reshape(narrow(x[0], 2, 32, 64), {2, 3, 1, 64}), b = reshape(chunk(x[1], 3)[1], {2, 4, 1, 32});
                const Tensor c = reshape(concat({b, b}), {2, 4, 1, 64});
                const auto fixed = [&](uint64_t seed) { return random_tensor(x[0].stream(), x[0].dtype(), {64}, seed); };
                return some_rope(x[0], 7, 64, pairs).after_norm({{a, fixed(7)}, {c, fixed(8)}}, 1e-3f);
              },
              64});
  list.add({"norm_rope/joined strided",
            {{2, 3, 768}, {2, 4, 768}, {128}, {128}},
            [](Inputs x) {
              const Tensor a = reshape(narrow(x[0], 2, 256, 256), {2, 3, 2, 128}),
                           b = reshape(narrow(x[1], 2, 0, 256), {2, 4, 2, 128});
              return some_rope(x[0], 7, 128, RopePairs::Interleaved).after_norm({{a, x[2]}, {b, x[3]}}, 1e-3f);
            },
            128,
            false});
  list.add({"norm_rope/queries and keys",
            {{2, 3, 4, 128}, {2, 4, 4, 128}, {128}, {128}, {128}, {128}},
            [](Inputs x) {
              const auto [q, k] = some_rope(x[0], 7, 128, RopePairs::Interleaved)
                                      .after_norms({NormedPair{x[0], x[2], x[3]}, NormedPair{x[1], x[4], x[5]}}, 1e-3f);
              return concat({q, k}, 2);
            },
            128,
            false});
  list.add({"norm_rope/queries and keys 10",
            {{2, 3, 4, 10}, {10}, {10}},
            [](Inputs x) {
              const auto [q, k] = some_rope(x[0], 3, 10, RopePairs::Halves).after_norms({NormedPair{x[0], x[1], x[2]}}, 1e-3f);
              return concat({q, k}, 2);
            },
            10});
  list.add({.name = "norm_rope/klein",
            .inputs = {{1, 768, 9216}, {128}},
            .run =
                [](Inputs x) {
                  const Tensor q = reshape(narrow(x[0], 2, 3072, 3072), {1, 768, 24, 128});
                  return some_rope(q, 768, 128, RopePairs::Interleaved).after_norm({{q, x[1]}});
                },
            .terms = 128,
            .differentiable = false,
            .large = true});
  list.add({"attention/beside mlp",
            {{2, 5, 2, 8}, {2, 5, 2, 8}, {2, 5, 2, 8}, {2, 5, 16}, {24, 16}},
            [](Inputs x) { return attention_beside_mlp(x[0], x[1], x[2], x[3], x[4]); },
            64});
  list.add({"attention/beside swiglu",
            {{2, 5, 2, 8}, {2, 5, 2, 8}, {2, 5, 2, 8}, {2, 5, 24}},
            [](Inputs x) { return attention_beside_swiglu(x[0], x[1], x[2], x[3]); },
            64});
  list.add({.name = "attention/beside swiglu, klein",
            .inputs = {{1, 200, 2304}},
            .run =
                [](Inputs x) {
                  const auto p = split(x[0], {256, 256, 256, 1536});
                  const Shape heads{1, 200, 2, 128};
                  return attention_beside_swiglu(reshape(p[0], heads), reshape(p[1], heads), reshape(p[2], heads), p[3]);
                },
            .terms = 512,
            .differentiable = false,
            .large = true});
  list.add(
      {"attention/plain", {{2, 5, 2, 8}, {2, 7, 2, 8}, {2, 7, 2, 8}}, [](Inputs x) { return attention(x[0], x[1], x[2]); }, 64});
  list.add({"attention/grouped causal",
            {{1, 6, 4, 8}, {1, 6, 2, 8}, {1, 6, 2, 8}},
            [](Inputs x) { return attention(x[0], x[1], x[2], {.causal = true}); },
            64});
  list.add({"attention/masked",
            {{2, 6, 2, 8}, {2, 6, 2, 8}, {2, 6, 2, 8}},
            [](Inputs x) { return attention(x[0], x[1], x[2], {.causal = true, .key_mask = some_mask(x[0], 2, 6, 3)}); },
            64});
  for (const bool mixed : {false, true}) {
    list.add({.name = mixed ? "attention/mixed groups" : "attention/groups",
              .inputs = {{2, 12, 2, 8}, {2, 14, 2, 8}, {2, 14, 2, 8}},
              .run =
                  [mixed](Inputs x) {
                    const AttentionGroups groups = some_groups(x[0], x[1], mixed);
                    return attention(x[0], x[1], x[2], {.key_mask = {}, .groups = &groups});
                  },
              .terms = 64,
              .differentiable = false,
              .has_gradient = false});
    list.add({.name = mixed ? "attention/mixed groups beside swiglu, klein" : "attention/groups beside swiglu, klein",
              .inputs = {{1, 210, 2304}},
              .run =
                  [mixed](Inputs x) {
                    const auto p = split(x[0], {256, 256, 256, 1536});
                    const Shape heads{1, x[0].dim(1), 2, 128};
                    const Tensor q = reshape(p[0], heads), k = reshape(p[1], heads), v = reshape(p[2], heads);
                    const AttentionGroups groups = some_groups(q, k, mixed);
                    return attention_beside_swiglu(q, k, v, p[3], {}, {.key_mask = {}, .groups = &groups});
                  },
              .terms = 512,
              .differentiable = false,
              .large = true,
              .has_gradient = false});
  }
  list.add({"attention/one wide head",
            {{1, 9, 1, 40}, {1, 9, 1, 40}, {1, 9, 1, 40}},
            [](Inputs x) { return attention(x[0], x[1], x[2]); },
            64});
  list.add({"attention/strided",
            {{1, 5, 48}},
            [](Inputs x) {
              const auto p = chunk(x[0], 3);
              const Shape heads{1, 5, 2, 8};
              return attention(reshape(p[0], heads), reshape(p[1], heads), reshape(p[2], heads));
            },
            64});
  list.add({.name = "attention/head 128",
            .inputs = {{1, 150, 2, 128}, {1, 150, 2, 128}, {1, 150, 2, 128}},
            .run = [](Inputs x) { return attention(x[0], x[1], x[2]); },
            .terms = 512,
            .differentiable = false,
            .large = true,
            .flop = 4.0 * 150 * 150 * 256});
  list.add({.name = "attention/klein",
            .inputs = {{1, 768, 8, 128}, {1, 768, 8, 128}, {1, 768, 8, 128}},
            .run = [](Inputs x) { return attention(x[0], x[1], x[2]); },
            .terms = 1024,
            .differentiable = false,
            .large = true,
            .flop = 4.0 * 768 * 768 * 1024});
}

// The next token of a language model: 16 and 520 have kernels of their own on a GPU, 12 has none.
void tokens(List& list) {
  for (int64_t k : {12, 16, 520}) {
    list.add({.name = fmt::format("row_products/{}", k),
              .inputs = {{1, 1, k}, {k}, {24, k}, {8, k}, {9, k}},
              .run =
                  [](Inputs x) {
                    x[0].stream().wait();  // weights must be at rest
                    const Tensor weights[] = {x[2].detached(), x[3].detached(), x[4].detached()};
                    const Tensor all = Tensor::like(x[0], {1, 1, x[2].dim(0) + x[3].dim(0) + x[4].dim(0)});
                    std::vector<Tensor> places;
                    int64_t at = 0;
                    for (const Tensor& w : weights) {
                      places.push_back(all.narrowed(2, at, w.dim(0)));
                      at += w.dim(0);
                    }
                    row_products(x[0].detached(), RowNorm{x[1].detached(), 1e-3f}, weights, places);
                    return all;
                  },
              .terms = k,
              .differentiable = false,
              .has_gradient = false});
    list.add({.name = fmt::format("row_product_added/{}", k),
              .inputs = {{1, 1, 21}, {1, 1, k}, {21, k}},
              .run =
                  [](Inputs x) {
                    x[0].stream().wait();
                    return row_product_added(x[0], x[1], x[2]);
                  },
              .terms = k,
              .differentiable = false,
              .has_gradient = false});
    list.add({.name = fmt::format("row_swiglu/{}", k),
              .inputs = {{1, 1, k}, {k}, {21, k}, {21, k}},
              .run =
                  [](Inputs x) {
                    x[0].stream().wait();
                    return row_swiglu(x[0], {x[1], 1e-3f}, x[2], x[3]);
                  },
              .terms = 2 * k,
              .differentiable = false,
              .has_gradient = false});
  }
  for (int64_t d : {10, 128})
    list.add({.name = fmt::format("token_attention/{}", d),
              .inputs = {{1, 1, 4, d}, {1, 1, 2, d}, {d}, {d}, {1, 75, 2, d}, {1, 75, 2, d}},
              .run =
                  [](Inputs x) {
                    const Rope rope = some_rope(x[0], 1, x[0].dim(3), RopePairs::Halves);
                    const Tensor keys = x[4].cloned(), mask = some_mask(x[0], 1, x[4].dim(1), 70);
                    x[0].stream().wait();
                    const Tensor y = token_attention({.q = x[0],
                                                      .k = x[1],
                                                      .q_norm = x[2],
                                                      .k_norm = x[3],
                                                      .eps = 1e-3f,
                                                      .cosine = rope.cosine,
                                                      .sine = rope.sine,
                                                      .pairs = rope.pairs},
                                                     keys, x[5], 3, mask);
                    return concat({y, reshape(narrow(keys, 1, 3, 1), {1, 1, x[1].dim(2) * x[1].dim(3)})});
                  },
              .terms = 2 * d,
              .differentiable = false,
              .has_gradient = false});
}

void pictures(List& list) {
  list.add({"conv2d/3x3",
            {{2, 5, 4, 3}, {4, 3, 3, 3}, {4}},
            [](Inputs x) {
              return conv2d(x[0], x[1], x[2], 1, {1, 1, 1, 1});
            },
            27});
  list.add({"conv2d/1x1", {{1, 3, 4, 5}, {6, 1, 1, 5}, {6}}, [](Inputs x) { return conv2d(x[0], x[1], x[2], 1, {}); }, 5});
  list.add({"conv2d/down",
            {{1, 6, 4, 3}, {3, 3, 3, 3}, {3}},
            [](Inputs x) { return conv2d(x[0], x[1], x[2], 2, {.bottom = 1, .right = 1}); },
            27});
  list.add({"conv2d_add",
            {{1, 5, 4, 3}, {8, 3, 3, 3}, {8}, {1, 5, 4, 8}},
            [](Inputs x) {
              return conv2d_add(x[0], x[1], x[2], 1, {1, 1, 1, 1}, x[3]);
            },
            27});
  list.add(
      {"upsample_conv2d", {{2, 3, 4, 3}, {4, 3, 3, 3}, {4}}, [](Inputs x) { return upsample_conv2d(x[0], x[1], x[2]); }, 27});
  list.add({"upsample_nearest", {{1, 3, 2, 5}}, [](Inputs x) { return square(upsample_nearest(x[0])); }});
  list.add({"embedding", {{7, 5}}, [](Inputs x) {
              const std::vector<int32_t> ids = {3, 0, 6, 3};
              return embedding(Tensor::from<int32_t>(x[0].stream(), DType::I32, {2, 2}, ids), x[0], x[0].dtype());
            }});
  // More tokens than one block takes, most of them with one id.
  list.add({.name = "embedding/many tokens",
            .inputs = {{50, 130}},
            .run =
                [](Inputs x) {
                  std::vector<int32_t> ids(3000);
                  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i % 3 == 0 ? static_cast<int32_t>(i * i % 50) : 7;
                  return embedding(Tensor::from<int32_t>(x[0].stream(), DType::I32, {3000}, ids), x[0], x[0].dtype());
                },
            .terms = 3000,
            .differentiable = false});
  list.add({.name = "conv2d/vae",
            .inputs = {{1, 64, 64, 128}, {128, 3, 3, 128}, {128}},
            .run =
                [](Inputs x) {
                  return conv2d(x[0], x[1], x[2], 1, {1, 1, 1, 1});
                },
            .terms = 1152,
            .differentiable = false,
            .large = true,
            .flop = 2.0 * 64 * 64 * 128 * 9 * 128});
}

void losses(List& list) {
  list.add({"mse_loss", {{3, 7}, {3, 7}}, [](Inputs x) { return mse_loss(x[0], x[1]); }, 21});
  list.add({"l1_loss", {{3, 7}, {3, 7}}, [](Inputs x) { return l1_loss(x[0], x[1]); }, 21});
  list.add({"kl_loss", {{3, 7}, {3, 7}}, [](Inputs x) { return kl_loss(x[0], x[1]); }, 21});
}

}  // namespace

std::vector<OpCase> op_cases() {
  List list;
  elementwise(list);
  views(list);
  products(list);
  norms(list);
  attentions(list);
  tokens(list);
  pictures(list);
  losses(list);
  auto cases = list.take();
  for (OpCase& c : cases) c.rounds_in_fast = c.name.find("attention") != std::string::npos;
  return cases;
}

}  // namespace flux2
