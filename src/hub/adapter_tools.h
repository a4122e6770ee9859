#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "model/adapters.h"

namespace flux2 {

// An adapter file (LoRA and relatives) to apply to a transformer.
struct AdapterChoice {
  std::filesystem::path path;
  double strength = 1.0;
  std::string layers = {};  // which layers it may change, as Adapter takes it; empty: all

  bool operator==(const AdapterChoice&) const = default;
};

// Opens an adapter and compares it with the model, before anything large is read. Throws when the file is not an adapter, was
// made for another model, or changes nothing in this one. Warns of layers the model does not have and of unusual strengths.
std::shared_ptr<const Adapter> open_adapter(const AdapterChoice& choice, const Flux2Config& config, const Log& log);

// The result of `lora check`.
struct AdapterReport {
  struct Layer {
    std::string weight;
    std::string kind;
    int64_t rank = 0;
    double scale = 1, norm = 0;  // of the change; of DoRA and OFT, which depend on the weight, of their matrices
  };
  std::vector<Layer> layers;
  std::vector<std::string> not_finite;  // modules that hold NaN or infinities
  std::vector<std::string> unmatched, unknown_keys, text_encoder_keys;

  bool is_good() const { return not_finite.empty() && !layers.empty(); }
};
AdapterReport check_adapter(const Adapter& adapter);

// Writes the transformer with the adapters merged in, under original names: changed weights in BF16 (F32 where the base has
// it), others as they are; quantised ones become BF16. Works in ranges of rows, so that memory stays small. `training` is that of
// the base: Component::training().
void merge_into_file(const NamedWeights& base, const std::vector<AdapterUse>& uses, const std::filesystem::path& out,
                     ThreadPool& threads, const std::string& training = {});

enum class AdapterDialect {
  Kohya,  // lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight, as kohya's and musubi's trainers write
  Peft,   // transformer.transformer_blocks.0.attn.to_q.lora_A.weight, as diffusers reads
  Bfl,    // diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight, as ComfyUI and ai-toolkit write
};
const std::vector<std::string>& adapter_dialect_names();  // "kohya", "peft", "bfl" and "comfy", which is the same
AdapterDialect adapter_dialect_named(std::string_view name);

// The same LoRA with other tensor names. alpha is multiplied into the matrices, so that it equals the rank. Throws Incompatible
// for changes that are not pairs of matrices.
void convert_adapter(const Adapter& adapter, const Flux2Config& config, AdapterDialect to, const std::filesystem::path& out);

// A LoRA of that rank for each matrix that differs between two models of one geometry, nearest in the squared error. Returns
// the relative error of the difference.
double extract_adapter(const NamedWeights& tuned, const NamedWeights& base, int64_t rank, AdapterDialect to,
                       const std::filesystem::path& out, ThreadPool& threads);

// up · down of that rank nearest to the matrix, by iterating on a random subspace somewhat larger than the rank.
LowRankPair nearest_low_rank(const HostMatrix& matrix, int64_t rank, ThreadPool& threads);

}  // namespace flux2
