#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "train/data/buckets.h"
#include "train/data/scene_config.h"

namespace flux2 {

// Which images of a dataset show the same element.
enum class ImageGroup { None, Folder, Caption };

// One [[datasets]] table of a dataset file, complete: values come from the table, else from [general], else they are the
// defaults. The keys and their meaning are those of musubi-tuner; the part behind `// ours` is new.
struct DatasetConfig {
  PixelSize resolution = {960, 544};  // its area is that of the buckets
  std::string caption_extension;      // ".txt"; needed for a folder of images
  int64_t batch_size = 1, num_repeats = 1;
  bool enable_bucket = false, bucket_no_upscale = false;
  std::filesystem::path image_directory, image_jsonl_file;  // one of the two is given, or `scenes`
  std::filesystem::path cache_directory;
  std::filesystem::path control_directory;
  bool no_resize_control = false;
  std::optional<PixelSize> control_resolution;
  bool multiple_target = false;  // only the first image of an item is used

  // ours
  double caption_dropout_rate = 0, reference_dropout_rate = 0;
  std::string caption_prefix, caption_suffix, trigger_word;
  bool shuffle_tags = false;
  int64_t keep_tags = 0;
  std::optional<std::string> caption_default;
  bool recursive = false, flip_aug = false;
  std::filesystem::path mask_directory;
  bool alpha_mask = false;
  double mask_min = 0, loss_multiplier = 1;
  bool is_reg = false, validation = false, exif = true;
  // The images that condition an image-prompt adapter: those of a folder, named as their targets, or other images of the same
  // group. Neither: the target itself.
  std::filesystem::path image_prompt_directory;
  ImageGroup image_prompt_group = ImageGroup::None;
  std::optional<SceneConfig> scenes;  // drawn images instead of files; `resolution` is their size

  bool has_masks() const { return alpha_mask || !mask_directory.empty(); }
  bool has_image_prompts() const { return !image_prompt_directory.empty() || image_prompt_group != ImageGroup::None; }
  bool operator==(const DatasetConfig&) const = default;
};

// Reads the content of a dataset file. `file` is where it came from: paths that do not exist in the working directory are looked
// for beside it. Throws for unknown keys, wrong types and impossible values, naming the dataset and the key.
std::vector<DatasetConfig> read_dataset_config(const Json& content, const std::filesystem::path& file, const Log& log = {});

// The keys of a dataset file that musubi-tuner does not know and would refuse, as "datasets[0].flip_aug".
std::vector<std::string> keys_musubi_refuses(const Json& content);

// Every value of a dataset, for messages: {"resolution", "960×544"}, …
std::vector<std::pair<std::string, std::string>> described(const DatasetConfig& config);

}  // namespace flux2
