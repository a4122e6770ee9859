#include "train/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "train/optimiser/optimiser_names.h"

namespace flux2 {

namespace {

template <class Number>
Number number_in(const TrainField& field, const std::string& text, const char* kind) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), "{}: \"{}\" is not {}", field.name, text, kind);
  if constexpr (std::is_floating_point_v<Number>)
    check(std::isfinite(value), "{}: \"{}\" is not a finite number", field.name, text);
  return value;
}
int64_t integer_in(const TrainField& field, const std::string& text) { return number_in<int64_t>(field, text, "a whole number"); }
double real_in(const TrainField& field, const std::string& text) { return number_in<double>(field, text, "a number"); }

bool flag_in(const TrainField& field, const std::string& text) {
  if (text == "true" || text == "True" || text == "1" || text.empty()) return true;
  check(text == "false" || text == "False" || text == "0", "{}: \"{}\" is neither true nor false", field.name, text);
  return false;
}

// Each form of a member, from text.
struct Assign {
  TrainOptions& options;
  const TrainField& field;
  const std::vector<std::string>& values;

  const std::string& one() const { return values.back(); }
  void operator()(bool TrainOptions::*m) const { options.*m = flag_in(field, one()); }
  void operator()(int64_t TrainOptions::*m) const { options.*m = integer_in(field, one()); }
  void operator()(double TrainOptions::*m) const { options.*m = real_in(field, one()); }
  void operator()(std::string TrainOptions::*m) const { options.*m = one(); }
  void operator()(std::optional<int64_t> TrainOptions::*m) const { options.*m = integer_in(field, one()); }
  void operator()(std::optional<double> TrainOptions::*m) const { options.*m = real_in(field, one()); }
  void operator()(std::optional<std::string> TrainOptions::*m) const { options.*m = one(); }
  void operator()(std::vector<std::string> TrainOptions::*m) const { options.*m = values; }
};

struct AsJson {
  const TrainOptions& options;

  template <class T>
  Json operator()(T TrainOptions::*m) const {
    return options.*m;
  }
  template <class T>
  Json operator()(std::optional<T> TrainOptions::*m) const {
    return options.*m ? Json(*(options.*m)) : Json(nullptr);
  }
};

}  // namespace

const TrainField* find_train_field(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  const auto& fields = train_fields();
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const TrainField& f) { return f.name == wanted; });
  return found == fields.end() ? nullptr : &*found;
}

void set_train_option(TrainOptions& options, const TrainField& field, const std::vector<std::string>& values) {
  require(!values.empty(), "no value for {}", field.name);
  if (!field.words.empty() && std::find(field.words.begin(), field.words.end(), values.back()) == field.words.end()) {
    const std::string near = nearest_word(values.back(), field.words);
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("{}: \"{}\" is not one of: {}", field.name, printable(values.back()), fmt::join(field.words, ", ")),
                near.empty() ? Hint() : Hint(fmt::format("did you mean {}?", near)));
  }
  std::visit(Assign{options, field, values}, field.member);
}

Json train_options_json(const TrainOptions& options) {
  Json json = Json::object();
  for (const TrainField& field : train_fields())
    if (!field.secret) json[field.name] = std::visit(AsJson{options}, field.member);
  return json;
}

const std::vector<std::string>& train_preset_names() {
  static const std::vector<std::string> names = {"character", "style", "edit", "concept"};
  return names;
}

std::vector<std::pair<std::string, std::string>> train_preset(std::string_view name, int64_t hidden) {
  struct Recipe {
    int64_t dim;
    const char* rate;
    int64_t steps;
    const char* scheduler;
    const char* warmup;
  };
  // Small public experiments with klein; the 9B model needs a lower rate and more steps than the 4B model.
  const bool large = hidden > 3072;
  Recipe recipe;
  if (name == "character") {
    recipe =
        large ? Recipe{32, "1e-4", 2500, "constant_with_warmup", "100"} : Recipe{32, "2e-4", 1200, "constant_with_warmup", "50"};
  } else if (name == "style") {
    recipe =
        large ? Recipe{32, "1e-4", 1000, "constant_with_warmup", "100"} : Recipe{16, "3e-4", 800, "constant_with_warmup", "50"};
  } else if (name == "edit") {
    recipe = large ? Recipe{64, "1e-4", 2000, "cosine", "250"} : Recipe{32, "1e-4", 2000, "cosine", "250"};
  } else if (name == "concept") {
    recipe =
        large ? Recipe{32, "1e-4", 2000, "constant_with_warmup", "100"} : Recipe{16, "1e-4", 1500, "constant_with_warmup", "50"};
  } else {
    fail(ErrorCode::InvalidArgument, "preset: \"{}\" is not one of: {}", name, fmt::join(train_preset_names(), ", "));
  }
  const std::string dim = fmt::format("{}", recipe.dim);
  return {{"network_dim", dim},
          {"network_alpha", dim},
          {"learning_rate", recipe.rate},
          {"max_train_steps", fmt::format("{}", recipe.steps)},
          {"lr_scheduler", recipe.scheduler},
          {"lr_warmup_steps", recipe.warmup},
          {"optimizer_type", "adamw8bit"},
          {"timestep_sampling", "flux2_shift"},
          {"gradient_checkpointing", "true"},
          {"save_every_n_steps", "250"},
          {"save_last_n_steps", "1000"},
          {"save_state", "true"},
          {"save_last_n_steps_state", "250"},
          {"sample_every_n_steps", "250"}};
}

std::optional<std::string> state_on_hub(const TrainOptions& o) {
  if (!o.resume_from_huggingface) return {};
  const std::string& text = *o.resume_from_huggingface;
  if (text == "false" || text == "False") return {};
  // "newest" is what an option without its value means.
  const auto says_nothing = [](const std::string& word) {
    return word.empty() || word == "newest" || word == "true" || word == "True";
  };
  const bool is_flag = says_nothing(text), named = o.resume && !says_nothing(*o.resume);
  check(is_flag == named, "resume_from_huggingface needs one place of a state: {}",
        named ? "resume must not name another" : "write owner/name/folder");
  return is_flag ? *o.resume : text;
}

std::vector<double> validation_times(const TrainOptions& options) {
  const TrainField& field = *find_train_field("validation_timesteps");
  const std::string& list = options.validation_timesteps;
  std::vector<double> times;
  for (size_t start = 0; start <= list.size();) {
    const size_t comma = std::min(list.find(',', start), list.size());
    times.push_back(real_in(field, std::string(trimmed(std::string_view(list).substr(start, comma - start)))));
    check(times.back() >= 0 && times.back() <= 1, "validation_timesteps: {} is not between 0 and 1", times.back());
    start = comma + 1;
  }
  return times;
}

void check_given_train_options(const TrainOptions& o, const std::vector<std::string>& names) {
  static const char* const kNoLayers = "an image-prompt adapter has no layers with a rank";
  static const std::vector<std::pair<std::string_view, const char*>> kReasons = {
      {"network_module", kNoLayers},
      {"network_dim", kNoLayers},
      {"network_alpha", kNoLayers},
      {"network_dropout", kNoLayers},
      {"network_args", kNoLayers},
      {"dim_from_weights", kNoLayers},
      {"scale_weight_norms", kNoLayers},
      {"preset", "presets are for adapters of layers"},
      {"output_preservation", "without an image prompt, the model gives the same output as before"},
      {"output_preservation_class", "without an image prompt, the model gives the same output as before"},
      {"zero_cond_t", "image prompts do not work with references at time 0"},
      {"kv_references", "image prompts do not work with references at time 0"},
      {"require_cache", "the images must be opened, because their vectors are not cached"}};
  for (const std::string& name : names) {
    if (!trains_image_prompt(o)) {
      if (name.starts_with("image_prompt_"))
        throw Error(ErrorCode::InvalidArgument, fmt::format("{} is for training an image-prompt adapter", name),
                    Hint("add {0}, or leave it out", {set_option("kind", "image_prompt")}));
      continue;
    }
    for (const auto& [refused, reason] : kReasons)
      check(name != refused, "{} cannot be combined with kind image_prompt: {}", name, reason);
  }
}

namespace {

void check_image_prompt_options(const TrainOptions& o) {
  const Json now = train_options_json(o), usual = train_options_json(TrainOptions());
  std::vector<std::string> changed;
  for (const auto& [name, value] : now.items())
    if (value != usual[name]) changed.push_back(name);
  check_given_train_options(o, changed);
  if (!trains_image_prompt(o)) return;
  check(!o.full && o.train.empty(), "kind image_prompt trains an adapter; it cannot be combined with full or train");
  if (o.image_prompt_encoder.empty())
    throw Error(ErrorCode::InvalidArgument, "kind image_prompt needs an image encoder (CLIP)",
                Hint("name its file with {0}", {set_option("image_prompt_encoder")}));
  const int64_t tokens = o.image_prompt_tokens.value_or(kUsualImagePromptTokens);
  check(tokens >= 1 && tokens <= 1024, "image_prompt_tokens must be between 1 and 1024, not {}", tokens);
  const double dropout = o.image_prompt_dropout.value_or(kUsualImagePromptDropout);
  check(dropout >= 0 && dropout < 1, "image_prompt_dropout must be at least 0 and less than 1, not {}", dropout);
}

}  // namespace

void check_train_options(const TrainOptions& o) {
  const auto at_least = [](const char* name, std::optional<int64_t> value, int64_t low) {
    check(!value || *value >= low, "{} must be at least {}, not {}", name, low, value.value_or(0));
  };
  at_least("max_train_steps", o.max_train_steps, 1);
  at_least("max_train_epochs", o.max_train_epochs, 1);
  at_least("gradient_accumulation_steps", o.gradient_accumulation_steps, 1);
  at_least("network_dim", o.network_dim, 1);
  at_least("save_every_n_steps", o.save_every_n_steps, 1);
  at_least("save_every_n_epochs", o.save_every_n_epochs, 1);
  at_least("sample_every_n_steps", o.sample_every_n_steps, 1);
  at_least("sample_every_n_epochs", o.sample_every_n_epochs, 1);
  at_least("validate_every_n_steps", o.validate_every_n_steps, 1);
  at_least("nan_limit", o.nan_limit, 1);
  at_least("ranks", o.ranks, 1);
  validation_times(o);
  check(!o.output_preservation || *o.output_preservation > 0, "output_preservation must be positive, not {}",
        o.output_preservation.value_or(0));
  check(
      o.output_preservation.has_value() == !o.output_preservation_class.empty(),
      "output_preservation and output_preservation_class need each other: a weight, and the prompt whose results stay the same");
  check(!o.output_preservation || !o.full,
        "output_preservation compares the model with and without its adapter; it cannot be combined with full");
  at_least("seed", o.seed, 0);
  check(o.learning_rate >= 0, "learning_rate must not be negative, not {}", o.learning_rate);
  check(o.max_grad_norm >= 0, "max_grad_norm must not be negative, not {}", o.max_grad_norm);
  check(o.huber_delta > 0, "huber_delta must be positive, not {}", o.huber_delta);
  check(!o.max_time || *o.max_time > 0, "max_time must be positive");
  check(!o.ema_decay || (*o.ema_decay > 0 && *o.ema_decay < 1), "ema_decay must be between 0 and 1");
  check(!o.scale_weight_norms || *o.scale_weight_norms > 0, "scale_weight_norms must be positive");
  const int64_t low = o.min_timestep.value_or(0), high = o.max_timestep.value_or(1000);
  check(low >= 0 && high <= 1000 && low < high, "min_timestep and max_timestep must satisfy 0 ≤ min < max ≤ 1000, not {} and {}",
        low, high);
  check(!o.num_timestep_buckets || *o.num_timestep_buckets >= 2, "num_timestep_buckets must be at least 2");
  check(o.mixed_precision != "fp16", "mixed_precision: fp16 is not supported; use bf16");
  if (o.fp8_base && !o.fp8_scaled)
    throw Error(ErrorCode::InvalidArgument, "fp8_base without scales would also round norms and embeddings",
                Hint("add {0}", {set_option("fp8_scaled")}));
  check(!o.fp8_scaled || o.fp8_base, "fp8_scaled needs fp8_base");
  check(o.full || (!o.full_bf16 && o.freeze.empty() && !o.decay_all), "full_bf16, freeze and decay_all need full");
  check(!o.full || (o.network_weights.empty() && o.network_args.empty() && !o.scale_weight_norms && !o.fp8_base),
        "network_weights, network_args, scale_weight_norms and fp8_base are for adapters; they cannot be combined with full");
  check(!o.gradient_checkpointing || o.activation_policy != "p0",
        "gradient_checkpointing computes blocks twice, and activation_policy p0 does not; use one of them");
  check(!o.gradient_checkpointing_cpu_offload || o.gradient_checkpointing || o.activation_policy == "p1" ||
            o.activation_policy == "p2",
        "gradient_checkpointing_cpu_offload needs gradient_checkpointing, or activation_policy p1 or p2");
  check(!o.fused_backward_pass || o.full, "fused_backward_pass needs full: the gradients of adapters are small");
  check(!o.fused_backward_pass || (o.gradient_accumulation_steps == 1 && o.ranks == 1),
        "fused_backward_pass changes the weights in every backward pass, so it does not work with gradient_accumulation_steps or "
        "ranks above 1");
  check(!o.fused_backward_pass || optimiser_named(o.optimizer_type) != OptimiserKind::Prodigy,
        "Prodigy looks at all gradients before it changes a weight, so it does not work with fused_backward_pass");
  check(!o.dim_from_weights || !o.network_weights.empty(), "dim_from_weights needs network_weights");
  check(!(o.ema_sample || o.ema_warmup) || o.ema_decay, "ema_sample and ema_warmup need ema_decay");
  check(o.base_weights_multiplier.size() <= o.base_weights.size(), "base_weights_multiplier has {} values for {} base_weights",
        o.base_weights_multiplier.size(), o.base_weights.size());
  check_image_prompt_options(o);
  state_on_hub(o);
  const size_t slash = o.huggingface_repo_id.find('/');
  check(o.huggingface_repo_id.empty() || (slash != 0 && slash + 1 < o.huggingface_repo_id.size() && slash != std::string::npos &&
                                          slash == o.huggingface_repo_id.rfind('/')),
        "huggingface_repo_id: \"{}\" is not a repository; write owner/name", printable(o.huggingface_repo_id));
  check(!o.save_state_to_huggingface || !o.huggingface_repo_id.empty(), "save_state_to_huggingface needs huggingface_repo_id");
  check(o.train.empty() || o.full, "train chooses a part of the whole model, so it needs full");
  check(o.train != "vae" || !o.fused_backward_pass,
        "fused_backward_pass is for the transformer; it cannot be combined with train vae");
  check(!o.from_scratch || o.full, "from_scratch needs full: an adapter starts from a trained model");
  check(!o.text_encoder_lr || o.train == "transformer+text_encoder", "text_encoder_lr needs train transformer+text_encoder");
  check(!o.text_encoder_lr || *o.text_encoder_lr >= 0, "text_encoder_lr must not be negative, not {}",
        o.text_encoder_lr.value_or(0));
  check(o.train == "vae" || o.vae_crop == 0, "vae_crop needs train vae");
  at_least("distill_steps", o.distill_steps, 1);
  check(!o.distill_steps || (o.full && (o.train.empty() || o.train == "transformer")),
        "distill_steps trains the transformer itself; it needs train transformer");
  check(!o.distill_steps || (o.distill_teacher_steps >= *o.distill_steps && o.distill_teacher_steps % *o.distill_steps == 0),
        "distill_teacher_steps must be a multiple of distill_steps, not {}", o.distill_teacher_steps);
  check(o.distill_guidance >= 1 && o.distill_reference_guidance >= 1,
        "distill_guidance and distill_reference_guidance must be at least 1");
  check(!o.distill_steps || !(o.from_scratch || o.fused_backward_pass || o.validate_every_n_steps),
        "distill_steps cannot be combined with from_scratch, fused_backward_pass or validate_every_n_steps");
  if (o.train != "vae" && (o.sample_every_n_steps || o.sample_every_n_epochs || o.sample_at_first) && o.sample_prompts.empty() &&
      o.preset.empty())
    throw Error(ErrorCode::InvalidArgument, "sample images need prompts",
                Hint("name a file with {0}", {set_option("sample_prompts")}));
}

}  // namespace flux2
