#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace flux2 {

// Every setting of a training run that is not a setting of the engine. Names and defaults are musubi-tuner's where it has the
// option; what they mean is in train_fields().
struct TrainOptions {
  // Data
  std::string dataset_config;
  std::string model_version = "auto";
  std::string config_file;
  std::string preset;
  bool require_cache = false;
  bool keep_cache = false;

  // Length
  int64_t max_train_steps = 1600;
  std::optional<int64_t> max_train_epochs;
  std::optional<double> max_time;
  std::optional<int64_t> seed;
  int64_t gradient_accumulation_steps = 1;

  // Optimiser
  std::string optimizer_type = "adamw";
  std::vector<std::string> optimizer_args;
  double learning_rate = 2e-6;
  double max_grad_norm = 1.0;
  std::string lr_scheduler = "constant";
  std::string lr_warmup_steps = "0", lr_decay_steps = "0";
  int64_t lr_scheduler_num_cycles = 1;
  double lr_scheduler_power = 1.0;
  std::optional<int64_t> lr_scheduler_timescale;
  std::optional<double> lr_scheduler_min_lr_ratio;
  std::vector<std::string> lr_scheduler_args;

  // What is trained
  std::string kind;   // empty: adapter
  std::string train;  // empty: an adapter, or with `full` the transformer
  bool from_scratch = false;
  std::optional<double> text_encoder_lr;
  int64_t vae_crop = 0;
  double vae_l1 = 1, vae_mse = 2, vae_edges = 0.5, vae_kl = 2e-5;
  int64_t vae_statistics = 2560;
  bool full = false, full_bf16 = false;
  std::vector<std::string> freeze;
  bool decay_all = false;
  bool fused_backward_pass = false;

  // Image prompts
  std::string image_prompt_encoder;
  std::string image_prompt_form, image_prompt_feature;  // empty: decoupled, pooled
  std::optional<int64_t> image_prompt_tokens;
  std::optional<double> image_prompt_dropout;

  // Adapter
  std::string network_module = "networks.lora_flux_2";
  int64_t network_dim = 4;
  double network_alpha = 1;
  double network_dropout = 0;
  std::vector<std::string> network_args;
  std::string network_weights;
  bool dim_from_weights = false;
  std::vector<std::string> base_weights;
  std::vector<std::string> base_weights_multiplier;
  std::optional<double> scale_weight_norms;
  std::optional<double> ema_decay;
  bool ema_warmup = false, ema_sample = false;

  // Objective
  std::string timestep_sampling = "sigma";
  double discrete_flow_shift = 1.0, sigmoid_scale = 1.0;
  std::string weighting_scheme = "none";
  double logit_mean = 0, logit_std = 1, mode_scale = 1.29;
  std::optional<int64_t> min_timestep, max_timestep;
  bool preserve_distribution_shape = false;
  std::optional<int64_t> num_timestep_buckets;
  double timestep_offset = 0;
  std::string show_timesteps;
  double guidance_scale = 1.0;
  bool zero_cond_t = false, kv_references = false;
  std::string loss = "mse";
  double huber_delta = 0.1;
  std::optional<int64_t> validate_every_n_steps;
  std::string validation_timesteps = "0.1,0.3,0.5,0.7,0.9";
  std::optional<double> output_preservation;
  std::string output_preservation_class;
  std::optional<int64_t> distill_steps;
  int64_t distill_teacher_steps = 20;
  double distill_guidance = 3.5, distill_reference_guidance = 2.5;
  int64_t nan_limit = 5;
  bool deterministic = false;

  // Memory
  bool gradient_checkpointing = false, gradient_checkpointing_cpu_offload = false;
  std::string activation_policy;
  std::string mixed_precision;
  bool fp8_base = false, fp8_scaled = false;

  // Output
  std::string output_dir = "training", output_name = "last";
  std::string save_precision = "float";
  std::optional<int64_t> save_every_n_epochs, save_every_n_steps;
  std::optional<int64_t> save_last_n_epochs, save_last_n_steps, save_last_n_epochs_state, save_last_n_steps_state;
  bool save_state = false, save_state_on_train_end = false;
  std::optional<std::string> resume;  // empty text: the newest state of this output
  bool resume_force = false;
  bool no_metadata = false;
  std::string training_comment;
  std::string metadata_title, metadata_author, metadata_description, metadata_license, metadata_tags, metadata_reso,
      metadata_arch;
  std::string huggingface_repo_id, huggingface_repo_type = "model", huggingface_path_in_repo, huggingface_token,
                                   huggingface_repo_visibility = "private";
  bool save_state_to_huggingface = false, async_upload = false;
  std::optional<std::string> resume_from_huggingface;  // see state_on_hub()

  // Samples
  std::string sample_prompts;
  std::optional<int64_t> sample_every_n_steps, sample_every_n_epochs;
  bool sample_at_first = false;

  // Logs
  std::string logging_dir, log_with, log_prefix, log_tracker_name;
  bool log_config = false;
  std::string jsonl;

  // Several processes
  int64_t ranks = 1;
  int64_t ddp_timeout = 5;
  std::string ddp_backend = "auto";

  bool force = false;
};

inline constexpr int64_t kUsualImagePromptTokens = 4;
inline constexpr double kUsualImagePromptDropout = 0.1, kUsualImagePromptRate = 1e-4;

// Whether an image-prompt adapter is trained (train/trained_image_prompt.h).
inline bool trains_image_prompt(const TrainOptions& options) { return options.kind == "image_prompt"; }

// One option: its name as in musubi-tuner (with underscores), what follows it, and its help.
struct TrainField {
  using Member = std::variant<bool TrainOptions::*, int64_t TrainOptions::*, double TrainOptions::*, std::string TrainOptions::*,
                              std::optional<int64_t> TrainOptions::*, std::optional<double> TrainOptions::*,
                              std::optional<std::string> TrainOptions::*, std::vector<std::string> TrainOptions::*>;
  std::string name;
  std::string group;
  std::string value;  // "N"; empty for a flag
  std::string help;
  Member member;
  std::vector<std::string> words = {};  // if only these values are valid
  bool secret = false;                  // never written anywhere

  bool is_list() const { return std::holds_alternative<std::vector<std::string> TrainOptions::*>(member); }
};

const std::vector<TrainField>& train_fields();
const TrainField* find_train_field(std::string_view name);  // dashes and underscores are equal

// Options of musubi-tuner that have no effect here, with the reason. `value` as above.
struct IgnoredTrainOption {
  std::string name, value, reason;
  bool refused = false;  // the run would not do what the option asks for; `reason` says what to do instead
};
const std::vector<IgnoredTrainOption>& ignored_train_options();

// Sets a value from text; a list is replaced. Throws InvalidArgument with the name, the text and what is valid.
void set_train_option(TrainOptions& options, const TrainField& field, const std::vector<std::string>& values);

// Every option with its value, for states, metadata and logs; without secrets.
Json train_options_json(const TrainOptions& options);

// What a preset sets, for a transformer of that width: option names and values. Throws InvalidArgument for an unknown name.
const std::vector<std::string>& train_preset_names();
std::vector<std::pair<std::string, std::string>> train_preset(std::string_view name, int64_t hidden);

// The place of a state on a hub to resume from: resume_from_huggingface, or `resume` if that is only a flag, as in musubi-tuner.
// Throws InvalidArgument if both name one or neither does.
std::optional<std::string> state_on_hub(const TrainOptions& options);

// The noise levels at which the validation loss is measured. Throws InvalidArgument if one is not a number between 0 and 1.
std::vector<double> validation_times(const TrainOptions& options);

// Options that were named, but mean nothing for what is trained. Throws InvalidArgument for the first one.
void check_given_train_options(const TrainOptions& options, const std::vector<std::string>& names);

// Combinations that cannot work, before anything is read.
void check_train_options(const TrainOptions& options);

}  // namespace flux2
