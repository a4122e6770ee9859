#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace flux2 {

// What the metadata of a saved adapter or model says about the run that made it. Absent values are written as "None", as Python
// does, so that every tool that reads such files understands them.
struct RunFacts {
  uint64_t session_id = 0;                 // a random number of the run
  double started_at = 0, finished_at = 0;  // Unix seconds; finished_at is the time of this save
  std::optional<std::string> output_name;
  std::optional<double> learning_rate;  // empty: Adafactor chooses it
  int64_t train_items = 0, batches_per_epoch = 0, epochs = 0;
  bool gradient_checkpointing = false, gradient_checkpointing_cpu_offload = false;
  int64_t gradient_accumulation_steps = 1, max_train_steps = 0;
  std::string lr_warmup_steps = "0";  // as given: "100", "0.1", "10%"
  std::string lr_scheduler = "constant";
  std::string base_model_version;  // "flux_2_klein_4b"
  std::optional<std::string> mixed_precision;
  uint64_t seed = 0;
  std::optional<std::string> training_comment;
  std::string optimizer;                    // "torch.optim.adamw.AdamW"
  std::vector<std::string> optimizer_args;  // "weight_decay=0.1"
  double max_grad_norm = 1.0;
  bool fp8_base = false, full_fp16 = false, full_bf16 = false;
  std::string weighting_scheme = "none";
  double logit_mean = 0, logit_std = 1, mode_scale = 1.29, guidance_scale = 1;
  std::string timestep_sampling = "sigma";
  double sigmoid_scale = 1, discrete_flow_shift = 1;
  std::optional<std::string> sd_model_name, vae_name;  // paths are cut to their last part
  int64_t steps = 0;                                   // done
  int64_t epoch = 0;  // epoch saves and the last file: counted from 1; step saves: finished epochs

  struct Network {
    std::string module = "networks.lora_flux_2";
    std::optional<int64_t> dim;
    std::optional<double> alpha, dropout;
    Json args;  // an object; null if none were given
  };
  std::optional<Network> network = Network{};  // empty: full fine-tuning

  struct Dataset {
    int64_t width = 0, height = 0;  // resolution
    std::optional<std::string> caption_extension;
    int64_t batch_size = 1, num_repeats = 1;
    bool enable_bucket = false, bucket_no_upscale = false;
    std::string image_directory, image_jsonl_file, control_directory;  // paths are cut to their last part; empty: absent
    bool has_control = false;
  };
  std::vector<Dataset> datasets;

  struct Modelspec {
    std::string architecture;  // "Flux.2-klein-4b", without "/lora"; see architecture_title()
    std::optional<std::string> title, author, description, license, tags;
    std::optional<std::string> resolution;  // "1024x1024"; empty: that of the first dataset
    std::optional<int64_t> min_timestep, max_timestep;
  } modelspec;

  std::map<std::string, std::string> extra;  // further keys, e.g. ss_flux2_references = kv
};

// The part of modelspec.architecture that belongs to a model: "flux_2_klein_4b" → "Flux.2-klein-4b". Custom geometries
// ("flux_2_custom_572ee0") give "Flux.2-custom".
std::string architecture_title(const std::string& base_model_version);

enum class MetadataKind { Full, Minimal };  // Minimal: only what is needed to load the file, and the model spec

// All keys except the two hashes. Throws InvalidArgument for a resolution that is none: call it once before training.
std::map<std::string, std::string> metadata_of(const RunFacts& facts, MetadataKind kind = MetadataKind::Full);

// A number as Python's str() writes a float: 0.0001, 1e-05, 1.0.
std::string python_number(double value);

}  // namespace flux2
