#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "train/log/train_state.h"

namespace flux2 {

namespace {

// What may change without changing what is learnt: how long, how often, where to and on what.
constexpr std::string_view kFree[] = {
    // limits
    "max_train_steps", "max_train_epochs", "max_time",
    // cadence
    "save_every_n_epochs", "save_every_n_steps", "save_last_n_epochs", "save_last_n_steps", "save_last_n_epochs_state",
    "save_last_n_steps_state", "save_state", "save_state_on_train_end", "sample_every_n_epochs", "sample_every_n_steps",
    "sample_at_first", "sample_prompts", "ema_sample", "validate_every_n_steps", "validation_timesteps",
    // logging and what is written
    "logging_dir", "log_with", "jsonl", "report", "output_dir", "training_comment", "no_metadata", "async_upload",
    "show_timesteps", "dry_run", "verbose", "quiet", "json", "progress", "log",
    // memory
    "activation_policy", "gradient_checkpointing", "gradient_checkpointing_cpu_offload", "blocks_to_swap",
    "use_pinned_memory_for_block_swap", "block_swap_h2d_only", "block_swap_ring_size", "block_swap_optimizer_patch_params",
    "img_in_txt_in_offloading", "keep_encoders", "optimizer_offload", "mem_eff_save", "memory", "offload", "disable_numpy_memmap",
    // device and processes
    "device", "devices", "ranks", "threads", "max_data_loader_n_workers", "persistent_data_loader_workers",
    // attention and compiler switches of musubi-tuner, which are accepted and ignored
    "sdpa", "flash_attn", "flash3", "xformers", "sage_attn", "split_attn",
    // how this run was asked for
    "resume", "resume_force", "force", "resume_from_huggingface", "require_cache", "config_file", "nan_limit"};
constexpr std::string_view kFreeBeginnings[] = {"log_", "wandb_",  "metadata_", "huggingface_", "save_state_to_",
                                                "ddp_", "compile", "dynamo_",   "cuda_"};

// An older program did not know all options of today; those that are off then mean nothing.
bool is_off(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_number() && value.get<double>() == 0) ||
         ((value.is_string() || value.is_array() || value.is_object()) && value.empty());
}

std::string option_value(const Json* value) {
  if (value == nullptr || value->is_null()) return "not set";
  return printable(value->is_string() ? value->get<std::string>() : value->dump(-1, ' ', false, Json::error_handler_t::replace));
}

struct OptionDifference {
  std::string name, before, now;
};

std::vector<OptionDifference> option_differences(const Json& before, const Json& now) {
  std::vector<OptionDifference> found;
  const auto compare = [&](const std::string& name, const Json* a, const Json* b) {
    if (may_differ_on_resume(name)) return;
    const bool same = a != nullptr && b != nullptr ? *a == *b : is_off(a != nullptr ? *a : *b);
    if (!same) found.push_back({printable(name), option_value(a), option_value(b)});
  };
  const auto find = [](const Json& object, const std::string& name) {
    const auto at = object.find(name);
    return at == object.end() ? nullptr : &*at;
  };
  for (const auto& [name, value] : before.items()) compare(name, &value, find(now, name));
  for (const auto& [name, value] : now.items())
    if (!before.contains(name)) compare(name, nullptr, &value);
  return found;
}

}  // namespace

bool may_differ_on_resume(std::string_view option) {
  return std::find(std::begin(kFree), std::end(kFree), option) != std::end(kFree) ||
         std::any_of(std::begin(kFreeBeginnings), std::end(kFreeBeginnings),
                     [&](auto start) { return option.starts_with(start); });
}

bool check_resume(const TrainState& saved, const ResumeCheck& run) {
  check(run.options.is_object(), "options are not an object");
  auto differences = option_differences(saved.options, run.options);
  if (saved.base.is_object() && run.base.is_object())
    for (OptionDifference& d : option_differences(saved.base, run.base)) differences.push_back(std::move(d));
  std::string text;
  for (const OptionDifference& d : differences) {
    if (run.force) run.log.warn("{} was {} and is now {}; the run goes on with the new value", d.name, d.before, d.now);
    text += fmt::format("{}{} was {} and is now {}", text.empty() ? "" : "; ", d.name, d.before, d.now);
  }
  if (!differences.empty() && !run.force)
    throw Error(ErrorCode::Incompatible, "the state is of a run with other options: " + text,
                Hint("use the old values, or {0} to go on with the new ones", {set_option("resume_force")}));
  if (saved.dataset_hash == run.dataset_hash) return false;
  run.log.warn("the dataset has changed since the state was saved; the order of this epoch starts again from the same seed");
  return true;
}

}  // namespace flux2
