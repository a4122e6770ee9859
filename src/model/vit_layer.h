#pragma once

#include <cstdint>
#include <string>

#include "nn/linear.h"

namespace flux2 {

// y = (x − mean) / sqrt(variance + eps) · weight + bias over the last axis.
struct LayerNorm {
  explicit LayerNorm(int64_t width = 0, float eps = 0) : width(width), eps(eps) {}

  Tensor operator()(const Tensor& x) const;
  void visit(const std::string& name, const ParameterVisitor& visitor);

  int64_t width;
  float eps;
  Tensor weight, bias;
};

// What differs between the families of vision transformers: how their files name the layers.
struct VitNames {
  const char *before, *query, *key, *value, *out, *after, *up, *down;
};
extern const VitNames kVitNames;   // ViT of transformers
extern const VitNames kClipNames;  // CLIP of transformers

// x · sigmoid(1.702 x), CLIP's approximation of gelu.
Tensor quick_gelu(const Tensor& x);

struct VitLayerConfig {
  int64_t hidden = 0, intermediate = 0, heads = 1;
  float eps = 0;
  bool quick_gelu = false;  // instead of gelu
  const VitNames* names = &kVitNames;
};

// x ← x + W_o attention(norm(x));  x ← x + W_down act(W_up norm(x)). Every patch sees every other one.
struct VitLayer {
  explicit VitLayer(const VitLayerConfig& config = {});

  Tensor operator()(const Tensor& x) const;  // [B, S, hidden]
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  VitLayerConfig config;
  LayerNorm before, after;
  Linear query, key, value, out, up, down;
};

}  // namespace flux2
