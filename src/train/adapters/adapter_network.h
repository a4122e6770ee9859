#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "train/adapters/rounded_parameters.h"
#include "train/adapters/trained_change.h"
#include "train/trained_model.h"
#include "weights/adapter_file.h"

namespace flux2 {

enum class AdapterForm { Lora, Loha, Lokr };

struct AdapterOptions {
  AdapterForm form = AdapterForm::Lora;
  int64_t dim = 4;
  double alpha = 1;  // 0: dim
  DropoutRates dropout;
  int64_t factor = -1;           // LoKr
  bool dora = false;             // LoRA with magnitudes
  bool rank_stabilised = false;  // LoRA: alpha / √dim
  // Layers with another rank or alpha than the rest, by their names in files.
  struct Shape {
    int64_t dim = 0;
    double alpha = 0;
    auto operator<=>(const Shape&) const = default;
  };
  std::map<std::string, Shape> shapes = {};
  // If it is not F32, adapters of this dtype are kept beside the trained ones, for the products of LoRA.
  DType activations = DType::F32;
  // A layer is left out if one of `exclude` matches its whole path and none of `include` does.
  std::vector<std::string> exclude, include;
};

// The adapters that are trained on the block layers of a transformer.
class AdapterNetwork final : public TrainedModel {
 public:
  // Attaches a new adapter to each selected layer of `network`, whose weights are frozen. Throws InvalidArgument if nothing is
  // selected.
  AdapterNetwork(Flux2Transformer& network, Stream& stream, const AdapterOptions& options, uint64_t seed);

  size_t modules() const override { return modules_.size(); }
  const AdapterOptions& options() const { return options_; }

  void begin_pass(const std::vector<uint64_t>& samples, bool training) override;
  void refresh() override;
  NormReport limit_norms(double limit) override;
  std::vector<std::pair<std::string, Tensor>> tensors() const override;  // every parameter and the alphas, F32
  void attach_for_sampling(Flux2Transformer& copy) const override;

  // Starts from an adapter file of any LoRA dialect. Throws Incompatible if a module has another rank or alpha than the options
  // say. Layers that the file does not have start as new and are named in a warning.
  void start_from(const std::filesystem::path& file, const Log& log);

  // Takes rank and alpha of each layer from a file. Layers that it does not have get those that most of its layers have.
  static void take_shapes(const std::filesystem::path& file, AdapterOptions& options, const Log& log);

 private:
  struct Module {
    std::string path;  // "double_blocks.0.img_attn.qkv"
    std::string name;  // in files: "lora_unet_double_blocks_0_img_attn_qkv"
    size_t layer = 0;  // its place in block_layers()
    Linear* linear;
    std::shared_ptr<TrainedChange> change;
  };

  void keep_rounded_parts();
  void list_parameters();

  AdapterOptions options_;
  std::shared_ptr<DropoutDraws> draws_;
  std::vector<Module> modules_;
  RoundedParameters rounded_;
};

}  // namespace flux2
