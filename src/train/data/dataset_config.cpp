#include "train/data/dataset_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/path_exists.h"
#include "base/text.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

// The values of a dataset file. Each says what it wants when the value is something else.
bool flag_in(const Json& value) {
  check(value.is_boolean(), "must be true or false");
  return value.get<bool>();
}

std::string text_in(const Json& value) {
  check(value.is_string(), "must be a text in quotes");
  return value.get<std::string>();
}

fs::path path_in(const Json& value) {
  const std::string text = text_in(value);
  check(!text.empty(), "must not be empty");
  return fs::path(text);
}

int64_t integer_in(const Json& value, int64_t low, int64_t high) {
  check(value.is_number_integer(), "must be a whole number");
  const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(high);
  check(fits && value.get<int64_t>() >= low && value.get<int64_t>() <= high, "must be between {} and {}", low, high);
  return value.get<int64_t>();
}

double number_in(const Json& value, double low, double high) {
  check(value.is_number(), "must be a number");
  const auto number = value.get<double>();
  check(number >= low && number <= high, "must be between {} and {}", low, high);
  return number;
}

PixelSize size_in(const Json& value) {
  if (value.is_number_integer()) {
    const int64_t side = integer_in(value, 1, kLargestArea);
    return {side, side};
  }
  check(value.is_array() && value.size() == 2 && value[0].is_number_integer() && value[1].is_number_integer(),
        "must be a whole number or [width, height]");
  return {integer_in(value[0], 1, kLargestArea), integer_in(value[1], 1, kLargestArea)};
}

PixelSize control_size_in(const Json& value) {
  const PixelSize size = size_in(value);
  check(size.width >= kBucketStep && size.height >= kBucketStep, "must be at least 16 pixels in both directions");
  check(size.area() <= kLargestArea, "must not be larger than 4096×4096");
  return size;
}

std::string extension_in(const Json& value) {
  std::string text = text_in(value);
  check(text.find('.') != text.npos && text.find('/') == text.npos, "must be an extension with its dot, like \".txt\"");
  return text;
}

ImageGroup group_in(const Json& value) {
  const std::string text = text_in(value);
  check(text == "folder" || text == "caption", "must be \"folder\" or \"caption\"");
  return text == "folder" ? ImageGroup::Folder : ImageGroup::Caption;
}

constexpr int64_t kMostSamples = 1'000'000;

struct ConfigKey {
  const char* name;
  bool in_general;  // whether [general] may have it too
  bool of_musubi;
  void (*read)(const Json& value, DatasetConfig& config);
};

template <auto kMember, auto kRead>
void store(const Json& value, DatasetConfig& config) {
  config.*kMember = kRead(value);
}

template <auto kRead>
void ignore(const Json& value, DatasetConfig&) {
  kRead(value);
}

template <int64_t kLow, int64_t kHigh>
int64_t count_in(const Json& value) {
  return integer_in(value, kLow, kHigh);
}

double share_in(const Json& value) { return number_in(value, 0, 1); }
double factor_in(const Json& value) { return number_in(value, 0, 1000); }

bool list_in(const Json& value) {
  check(value.is_array(), "must be a list of whole numbers");
  return true;
}

const std::vector<ConfigKey>& config_keys() {
  using C = DatasetConfig;
  static const std::vector<ConfigKey> keys = {
      {"resolution", true, true, store<&C::resolution, size_in>},
      {"caption_extension", true, true, store<&C::caption_extension, extension_in>},
      {"batch_size", true, true, store<&C::batch_size, count_in<1, 1024>>},
      {"num_repeats", true, true, store<&C::num_repeats, count_in<1, kMostSamples>>},
      {"enable_bucket", true, true, store<&C::enable_bucket, flag_in>},
      {"bucket_no_upscale", true, true, store<&C::bucket_no_upscale, flag_in>},
      {"image_directory", false, true, store<&C::image_directory, path_in>},
      {"image_jsonl_file", false, true, store<&C::image_jsonl_file, path_in>},
      {"cache_directory", false, true, store<&C::cache_directory, path_in>},
      {"control_directory", false, true, store<&C::control_directory, path_in>},
      {"no_resize_control", false, true, store<&C::no_resize_control, flag_in>},
      {"control_resolution", false, true, store<&C::control_resolution, control_size_in>},
      {"multiple_target", false, true, store<&C::multiple_target, flag_in>},
      // Of other models; no effect here.
      {"fp_latent_window_size", false, true, ignore<count_in<0, kMostSamples>>},
      {"fp_1f_clean_indices", false, true, ignore<list_in>},
      {"fp_1f_target_index", false, true, ignore<count_in<0, kMostSamples>>},
      {"fp_1f_no_post", false, true, ignore<flag_in>},

      {"caption_dropout_rate", true, false, store<&C::caption_dropout_rate, share_in>},
      {"caption_prefix", true, false, store<&C::caption_prefix, text_in>},
      {"caption_suffix", true, false, store<&C::caption_suffix, text_in>},
      {"trigger_word", false, false, store<&C::trigger_word, text_in>},
      {"shuffle_tags", true, false, store<&C::shuffle_tags, flag_in>},
      {"keep_tags", true, false, store<&C::keep_tags, count_in<0, kMostSamples>>},
      {"caption_default", false, false, store<&C::caption_default, text_in>},
      {"recursive", false, false, store<&C::recursive, flag_in>},
      {"flip_aug", true, false, store<&C::flip_aug, flag_in>},
      {"mask_directory", false, false, store<&C::mask_directory, path_in>},
      {"alpha_mask", false, false, store<&C::alpha_mask, flag_in>},
      {"mask_min", false, false, store<&C::mask_min, share_in>},
      {"loss_multiplier", false, false, store<&C::loss_multiplier, factor_in>},
      {"is_reg", false, false, store<&C::is_reg, flag_in>},
      {"reference_dropout_rate", true, false, store<&C::reference_dropout_rate, share_in>},
      {"validation", false, false, store<&C::validation, flag_in>},
      {"exif", true, false, store<&C::exif, flag_in>},
      {"image_prompt_directory", false, false, store<&C::image_prompt_directory, path_in>},
      {"image_prompt_group", false, false, store<&C::image_prompt_group, group_in>},
      {"scenes", false, false, store<&C::scenes, scene_config_in>},
  };
  return keys;
}

struct OldKey {
  const char* name;
  const char* now;
};
constexpr OldKey kOldKeys[] = {{"flux_kontext_no_resize_control", "no_resize_control"},
                               {"qwen_image_edit_no_resize_control", "no_resize_control"},
                               {"qwen_image_edit_control_resolution", "control_resolution"}};

const ConfigKey* find_key(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (name == key.name) return &key;
  return nullptr;
}

std::string current_name(std::string_view name) {
  for (const OldKey& old : kOldKeys)
    if (name == old.name) return old.now;
  return std::string(name);
}

void check_known(const std::string& table, const std::string& name, bool general) {
  const ConfigKey* key = find_key(general ? name : current_name(name));
  if (key && general) check(key->in_general, "{}: \"{}\" belongs into a table of datasets", table, name);
  if (key) return;
  std::vector<std::string> names;
  for (const ConfigKey& k : config_keys())
    if (!general || k.in_general) names.emplace_back(k.name);
  const std::string near = nearest_word(name, names);
  fail(ErrorCode::InvalidArgument, "{}: unknown key \"{}\"{}", table, printable(name),
       near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
}

// The values of one table with old names replaced.
Json table_in(const Json& table, const std::string& where, bool general, const Log& log) {
  check(table.is_object(), "{} must be a table", where);
  Json values = Json::object();
  for (const auto& [name, value] : table.items()) {
    if (!general && (name == "video_directory" || name == "video_jsonl_file"))
      fail(ErrorCode::InvalidArgument,
           "{} is a video dataset ({}); FLUX.2 is trained on images: use image_directory or image_jsonl_file", where, name);
    check_known(where, name, general);
    const std::string now = general ? name : current_name(name);
    if (now != name) log.warn("{}: the key \"{}\" is now called \"{}\"", where, name, now);
    if (now == name || !table.contains(now)) values[now] = value;
  }
  return values;
}

void read_values(const Json& values, const std::string& where, DatasetConfig& config) {
  for (const auto& entry : values.items())
    in_context(fmt::format("{}: {}", where, entry.key()), [&] { find_key(entry.key())->read(entry.value(), config); });
}

class PathFinder {
 public:
  explicit PathFinder(const fs::path& file) : folder_(file.parent_path()) {}

  // As in the working directory; what is not there, beside the file.
  void find(fs::path& path) {
    if (path.empty() || path.is_absolute() || path_exists(path)) return;
    if (!path_exists(folder_ / path)) return;
    path = folder_ / path;
    beside_ = true;
  }

  // A folder that may not exist yet is made where the others were found.
  void find_new(fs::path& path) {
    find(path);
    if (beside_ && path.is_relative() && !path_exists(path)) path = folder_ / path;
  }

 private:
  fs::path folder_;
  bool beside_ = false;
};

// Drawn images have no files, so nothing that is about files has a meaning.
void check_scenes(const DatasetConfig& c, const std::string& where) {
  const auto refuse = [&](bool given, const char* name) {
    check(!given, "{} has scenes, which are drawn, so {} cannot be used with it", where, name);
  };
  refuse(!c.image_directory.empty(), "image_directory");
  refuse(!c.image_jsonl_file.empty(), "image_jsonl_file");
  refuse(!c.control_directory.empty(), "control_directory");
  refuse(!c.cache_directory.empty(), "cache_directory");
  refuse(c.has_masks(), "a mask");
  refuse(!c.image_prompt_directory.empty(), "image_prompt_directory");
  refuse(c.image_prompt_group != ImageGroup::None, "image_prompt_group");
  refuse(c.flip_aug, "flip_aug");
  refuse(c.shuffle_tags, "shuffle_tags");
  refuse(c.enable_bucket, "enable_bucket");
  refuse(c.recursive, "recursive");
  refuse(!c.caption_prefix.empty() || !c.caption_suffix.empty() || !c.trigger_word.empty(), "words for all captions");
  check(c.resolution.width % kBucketStep == 0 && c.resolution.height % kBucketStep == 0 && c.resolution.width >= 32 &&
            c.resolution.height >= 32 && c.resolution.width <= 1024 && c.resolution.height <= 1024,
        "{}: the sides of drawn images are multiples of 16 between 32 and 1024, not {}×{}", where, c.resolution.width,
        c.resolution.height);
}

void check_dataset(DatasetConfig& c, const std::string& where, const Log& log) {
  if (c.scenes) return check_scenes(c, where);
  const bool folder = !c.image_directory.empty(), lines = !c.image_jsonl_file.empty();
  check(folder || lines, "{} needs image_directory, image_jsonl_file or scenes", where);
  check(!folder || !lines, "{} has both image_directory and image_jsonl_file: keep one", where);
  check(lines || !c.caption_extension.empty() || c.caption_default,
        "{} needs caption_extension, for example caption_extension = \".txt\"", where);
  check(folder || !c.cache_directory.empty(), "{} needs cache_directory, because it has image_jsonl_file", where);
  check(folder || !c.recursive, "{}: recursive works with image_directory only", where);
  if (lines && !c.control_directory.empty())
    log.warn("{}: control_directory has no effect with image_jsonl_file; use control_path in its lines", where);
  check(folder || c.image_prompt_directory.empty(),
        "{}: image_prompt_directory works with image_directory only; name the image in each line with image_prompt_path", where);
  check(c.image_prompt_directory.empty() || c.image_prompt_group == ImageGroup::None,
        "{} has both image_prompt_directory and image_prompt_group: keep one", where);
  if (c.multiple_target) log.warn("{}: multiple_target has no effect: FLUX.2 uses the first image of an item", where);
  check(!c.alpha_mask || c.mask_directory.empty(), "{} has both mask_directory and alpha_mask: keep one", where);
  if (!c.enable_bucket) c.bucket_no_upscale = false;
  in_context(where, [&] { Buckets(c.resolution, {c.enable_bucket, c.bucket_no_upscale}); });
}

std::string size_words(PixelSize size) { return fmt::format("{}×{}", size.width, size.height); }

}  // namespace

std::vector<DatasetConfig> read_dataset_config(const Json& content, const fs::path& file, const Log& log) {
  check(content.is_object(), "a dataset file is a table with the entries general and datasets");
  for (const auto& [name, value] : content.items()) {
    const std::string near = nearest_word(name, {"general", "datasets"});
    check(name == "general" || name == "datasets", "unknown entry \"{}\"{}: a dataset file has general and datasets",
          printable(name), near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
  }
  const Json none = Json::object();
  const Json general = table_in(content.contains("general") ? content["general"] : none, "general", true, log);
  check(content.contains("datasets") && content["datasets"].is_array() && !content["datasets"].empty(),
        "the dataset file lists no datasets: it needs at least one [[datasets]] table");

  std::vector<DatasetConfig> datasets;
  std::vector<fs::path> caches;
  for (const Json& table : content["datasets"]) {
    const std::string where = fmt::format("datasets[{}]", datasets.size());
    DatasetConfig config;
    read_values(general, "general", config);
    read_values(table_in(table, where, false, log), where, config);
    PathFinder paths(file);
    for (fs::path* path : {&config.image_directory, &config.image_jsonl_file, &config.control_directory, &config.mask_directory,
                           &config.image_prompt_directory})
      paths.find(*path);
    if (config.scenes) paths.find(config.scenes->things);
    if (config.cache_directory.empty()) config.cache_directory = config.image_directory;
    else paths.find_new(config.cache_directory);
    check_dataset(config, where, log);
    check(datasets.empty() || datasets.front().scenes.has_value() == config.scenes.has_value(),
          "{}: drawn scenes and files cannot be used in one run", where);
    if (config.scenes) {
      datasets.push_back(std::move(config));
      continue;
    }

    std::error_code unreadable;
    const fs::path cache = fs::weakly_canonical(fs::absolute(config.cache_directory, unreadable), unreadable);
    const auto same = std::find(caches.begin(), caches.end(), cache);
    check(same == caches.end(), "datasets[{}] and {} have the same cache folder, {}: give one of them another cache_directory",
          same - caches.begin(), where, config.cache_directory.string());
    caches.push_back(cache);
    datasets.push_back(std::move(config));
  }
  return datasets;
}

std::vector<std::string> keys_musubi_refuses(const Json& content) {
  std::vector<std::string> refused;
  const auto look = [&](const Json& table, const std::string& where) {
    if (!table.is_object()) return;
    for (const auto& [name, value] : table.items())
      if (const ConfigKey* key = find_key(name); !key || !key->of_musubi) refused.push_back(fmt::format("{}.{}", where, name));
  };
  if (content.is_object() && content.contains("general")) look(content["general"], "general");
  if (content.is_object() && content.contains("datasets") && content["datasets"].is_array())
    for (size_t i = 0; i < content["datasets"].size(); ++i) look(content["datasets"][i], fmt::format("datasets[{}]", i));
  return refused;
}

std::vector<std::pair<std::string, std::string>> described(const DatasetConfig& c) {
  const DatasetConfig usual;
  std::vector<std::pair<std::string, std::string>> rows;
  const auto add = [&](const char* name, std::string text) { rows.emplace_back(name, std::move(text)); };
  const auto flag = [&](const char* name, bool value) { add(name, value ? "true" : "false"); };
  if (!c.image_directory.empty()) add("image_directory", c.image_directory.string());
  if (!c.image_jsonl_file.empty()) add("image_jsonl_file", c.image_jsonl_file.string());
  if (c.scenes) {
    add("scenes", fmt::format("{}, {} with one reference, {} with two{}", c.scenes->count, c.scenes->edits(), c.scenes->blends(),
                              c.scenes->things.empty() ? "" : ", things of " + c.scenes->things.string()));
    add("resolution", size_words(c.resolution));
    add("batch_size", fmt::format("{}", c.batch_size));
    add("num_repeats", fmt::format("{}", c.num_repeats));
    return rows;
  }
  add("cache_directory", c.cache_directory.string());
  add("resolution", size_words(c.resolution));
  flag("enable_bucket", c.enable_bucket);
  flag("bucket_no_upscale", c.bucket_no_upscale);
  add("batch_size", fmt::format("{}", c.batch_size));
  add("num_repeats", fmt::format("{}", c.num_repeats));
  add("caption_extension", c.caption_extension.empty() ? "none" : c.caption_extension);
  if (!c.control_directory.empty()) add("control_directory", c.control_directory.string());
  flag("no_resize_control", c.no_resize_control);
  add("control_resolution", c.control_resolution ? size_words(*c.control_resolution) : "none");
  // What musubi-tuner does not have is listed where it is used.
  const auto number = [&](const char* name, double value, double normal) {
    if (value != normal) add(name, fmt::format("{}", value));
  };
  const auto text = [&](const char* name, const std::string& value) {
    if (!value.empty()) add(name, "\"" + value + "\"");
  };
  const auto set_flag = [&](const char* name, bool value, bool normal) {
    if (value != normal) flag(name, value);
  };
  number("caption_dropout_rate", c.caption_dropout_rate, 0);
  number("reference_dropout_rate", c.reference_dropout_rate, 0);
  text("caption_prefix", c.caption_prefix);
  text("caption_suffix", c.caption_suffix);
  text("trigger_word", c.trigger_word);
  text("caption_default", c.caption_default.value_or(""));
  set_flag("shuffle_tags", c.shuffle_tags, usual.shuffle_tags);
  if (c.keep_tags != 0) add("keep_tags", fmt::format("{}", c.keep_tags));
  set_flag("recursive", c.recursive, usual.recursive);
  set_flag("flip_aug", c.flip_aug, usual.flip_aug);
  text("mask_directory", c.mask_directory.string());
  text("image_prompt_directory", c.image_prompt_directory.string());
  if (c.image_prompt_group != ImageGroup::None)
    text("image_prompt_group", c.image_prompt_group == ImageGroup::Folder ? "folder" : "caption");
  set_flag("alpha_mask", c.alpha_mask, usual.alpha_mask);
  number("mask_min", c.mask_min, 0);
  number("loss_multiplier", c.loss_multiplier, 1);
  set_flag("is_reg", c.is_reg, usual.is_reg);
  set_flag("validation", c.validation, usual.validation);
  set_flag("exif", c.exif, usual.exif);
  return rows;
}

}  // namespace flux2
