#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/flux2_transformer.h"

namespace flux2 {

// One trained tensor with its name in files.
struct TrainedParameter {
  std::string name;         // "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight", "img_in.weight"
  Tensor leaf;              // contiguous F32 or BF16, updated in place
  bool is_up = false;       // of LoRA+: the matrix that learns faster
  bool is_encoder = false;  // of the text encoder, which has a learning rate of its own
};

// What a run trains: adapters on a frozen network, or the network itself. It is attached to the layers of a network.
class TrainedModel {
 public:
  virtual ~TrainedModel() = default;

  const std::vector<TrainedParameter>& parameters() const { return parameters_; }
  int64_t parameter_count() const;
  virtual size_t modules() const = 0;  // trained layers

  // The samples of the next pass, for dropouts; `training` is false for validation.
  virtual void begin_pass(const std::vector<uint64_t>& /*samples*/, bool /*training*/) {}
  // Must be called after the parameters have changed.
  virtual void refresh() {}

  // Limits the norm of every change (training.md 4.7). Throws InvalidArgument if this kind does not support it.
  struct NormReport {
    int64_t scaled = 0;
    double mean = 0, largest = 0;
  };
  virtual NormReport limit_norms(double limit) = 0;

  // As saved, by name.
  virtual std::vector<std::pair<std::string, Tensor>> tensors() const = 0;

  // Further parts of the model, each saved in a file of its own: NAME, this suffix and ".safetensors".
  struct Companion {
    std::string suffix;
    std::vector<std::pair<std::string, Tensor>> tensors;
  };
  virtual std::vector<Companion> companions() const { return {}; }
  // What restore() needs.
  virtual std::vector<std::pair<std::string, Tensor>> state_tensors() const { return tensors(); }

  // Makes a copy of the network compute with the present values, without gradients and dropouts.
  virtual void attach_for_sampling(Flux2Transformer& copy) const = 0;

  // Replaces the values by those of tensors(): each name must be there with its shape.
  void restore(const std::map<std::string, Tensor>& values);

 protected:
  std::vector<TrainedParameter> parameters_;
};

}  // namespace flux2
