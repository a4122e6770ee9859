#include "app/training_data.h"

#include <fmt/format.h>

#include "app/config_file.h"
#include "pipeline/latents.h"
#include "pipeline/references.h"
#include "pipeline/text_states.h"
#include "train/data/dataset.h"

namespace flux2 {

namespace {

// Which file made the values: another encoder of the same shape gives others.
std::string encoder_name(const std::filesystem::path& file, const EngineOptions& options) {
  std::error_code unknown;
  const auto bytes = std::filesystem::is_regular_file(file, unknown) ? std::filesystem::file_size(file, unknown) : 0;
  return fmt::format("{} {} {}", file.filename().string(), bytes, name_of(options.encoder_quant.value_or(options.quant)));
}

CacheProgress reporting(const Progress& progress, Phase phase) {
  return [&progress, phase](int64_t done, int64_t total) { progress.at(phase, static_cast<int>(done), static_cast<int>(total)); };
}

}  // namespace

Json read_json_or_toml(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  check(extension == ".json" || extension == ".toml", "{}: the file must end in .json or .toml", path.string());
  if (extension == ".json") return read_json(path);
  return in_context(path.string(), [&] { return json_of_toml(read_text_file(path)); });
}

TrainingDataset open_training_dataset(const std::filesystem::path& file, const ModelFiles& files, const Flux2Config& config,
                                      const Log& log) {
  TrainingDataset dataset;
  dataset.file = file;
  dataset.files = files;
  dataset.configs = read_dataset_config(read_json_or_toml(file), file, log);
  dataset.model = cache_model({.hidden = config.hidden,
                               .double_blocks = config.double_blocks,
                               .single_blocks = config.single_blocks,
                               .text_width = config.text_width,
                               .text_length = files.defaults.text_length});
  return dataset;
}

MadeCaches make_missing_caches(const TrainingDataset& dataset, const EngineOptions& engine_options, const MakeCaches& what,
                               const Progress& progress, const AppContext& context) {
  const std::vector<Dataset> listed = list_datasets(dataset.configs, {}, context.log);
  MadeCaches made;
  CacheOptions options = what.options;
  options.limits = context.limits.image;
  options.log = context.log;
  if (what.latents) {
    options.encoder = encoder_name(dataset.files.vae, engine_options);
    const auto tasks = latent_tasks(listed, dataset.model, options);
    if (!tasks.empty()) {
      const Engine engine(engine_options);
      const auto session = engine.open(dataset.files, progress, {.transformer = false, .text_encoder = false});
      const auto encode = [&](int width, int height, const std::vector<float>& planes) {
        const Tensor tokens = encode_picture(*session, Planes{width, height, planes}, progress);
        return to_planes(tokens.to_floats(), kLatentChannels);
      };
      make_latent_caches(listed, tasks, dataset.model, encode, options, reporting(progress, Phase::EncodeReferences));
      made.latents = static_cast<int64_t>(tasks.size());
    }
  }
  if (what.text) {
    options.encoder = encoder_name(dataset.files.text_encoder, engine_options);
    const auto tasks = text_tasks(listed, dataset.model, options);
    if (!tasks.empty()) {
      const Engine engine(engine_options);
      const auto session = engine.open(dataset.files, progress, {.transformer = false, .vae = false});
      const auto encode = [&](const std::vector<std::string>& texts) {
        std::vector<std::vector<float>> states;
        Progress silent = progress;
        silent.report = {};
        for (const std::string& text : texts) states.push_back(text_states(*session, text, "text", silent).to_floats());
        return states;
      };
      make_text_caches(listed, tasks, dataset.model, encode, options, reporting(progress, Phase::Text));
      made.texts = static_cast<int64_t>(tasks.size());
    }
  }
  if (!options.keep_cache) made.removed = remove_foreign_caches(listed, dataset.model, context.log);
  return made;
}

}  // namespace flux2
