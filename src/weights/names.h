#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/shape.h"
#include "weights/shard.h"

namespace flux2 {

// Canonical names are those of the original files: BFL's for the transformer and the autoencoder, Hugging Face's for the text
// encoder. All code above this folder uses canonical names only.
enum class ModelPart { Transformer, Autoencoder, TextEncoder };
enum class Dialect {
  Canonical,
  Diffusers,
  Ggml,           // language models in GGUF files: blk.0.attn_q.weight
  MistralNative,  // Mistral's own files, consolidated.safetensors: layers.0.attention.wq.weight
};

const char* name_of(ModelPart part);
const char* name_of(Dialect dialect);

// The repeated block a canonical tensor belongs to: "single_blocks.7", "model.layers.3". Empty for tensors outside of blocks.
std::string_view block_of(std::string_view canonical);

// A diffusers tensor as rows (indices of the first axis) of a canonical one, joined in the order given.
struct DiffusersTensor {
  std::string name;
  Shape shape;
  std::vector<IndexRange> rows;
};

// The tensors that a canonical tensor of that shape becomes in the diffusers layout: usually one tensor with another name; three
// for a fused qkv; one with its halves exchanged for the last modulation. Unknown names are kept.
std::vector<DiffusersTensor> to_diffusers(ModelPart part, std::string_view canonical, const Shape& shape);

// The name of a text encoder's tensor in GGUF files of language models; other names as they are.
std::string to_ggml(ModelPart part, std::string_view canonical);

}  // namespace flux2
