#include "app/training_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/config_file.h"
#include "app/model_choice.h"
#include "app/registry_access.h"
#include "base/file_hash.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "hub/folder_layout.h"
#include "hub/gguf_tokenizer.h"
#include "hub/recognise.h"
#include "pipeline/latents.h"
#include "pipeline/references.h"
#include "pipeline/text_states.h"
#include "text/prompt.h"
#include "train/data/cache_names.h"
#include "train/data/dataset.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHashedBytes = uint64_t{2} << 30;  // an autoencoder is smaller, a text encoder larger

// Names and sizes of a file, or of all files in a folder.
std::string name_and_size(const fs::path& path) {
  std::error_code fault;
  if (!is_folder(path)) return fmt::format("{} {}", path.filename().string(), fs::file_size(path, fault));
  uintmax_t bytes = 0;
  for (fs::recursive_directory_iterator at(path, fault), end; !fault && at != end; at.increment(fault))
    if (std::error_code unreadable; at->is_regular_file(unreadable)) bytes += at->file_size(unreadable);
  return fmt::format("{} {}", path.filename().string(), bytes);
}

// Which files made the values: another encoder of the same shape gives others.
std::string encoder_name(const fs::path& path, const AppContext& context) {
  const std::string hash =
      is_file(path) ? remembered_hash(path, data_path(context.environment, "cache/hashes.json"), kHashedBytes) : "";
  return hash.empty() ? name_and_size(path) : hash;
}

CacheProgress reporting(const Progress& progress, Phase phase) {
  return [&progress, phase](int64_t done, int64_t total) { progress.at(phase, static_cast<int>(done), static_cast<int>(total)); };
}

CacheModel cache_model_of(const Flux2Config& config, int text_length) {
  return cache_model({.hidden = config.hidden,
                      .double_blocks = config.double_blocks,
                      .single_blocks = config.single_blocks,
                      .text_width = config.text_width,
                      .text_length = text_length});
}

std::optional<Variant> variant_of(const std::string& version) {
  if (version.empty() || version == "auto") return {};
  const auto& names = model_version_names();
  const std::string near = nearest_word(version, names);
  check(std::find(names.begin(), names.end(), version) != names.end(), "unknown model version \"{}\"{}; use one of {}",
        printable(version), near.empty() ? "" : fmt::format("; did you mean {}?", near), fmt::join(names, ", "));
  return find_variant(version);
}

// A text encoder's tokenizer: in its folder, beside it, or inside its file.
fs::path tokenizer_near(const fs::path& encoder) {
  for (const fs::path& root : {encoder, encoder.parent_path()})
    if (const auto found = candidates_in(root, ComponentKind::Tokenizer); !found.empty()) return found.front();
  if (holds_inner_tokenizer(encoder)) return encoder;
  throw Error(ErrorCode::NotFound, fmt::format("the text encoder {} has no tokenizer beside it", encoder.string()),
              Hint("name it with {0}", {set_option("tokenizer")}));
}

// The files that were named, for a published model without its transformer.
CacheTarget named_parts(const RequestSpec& spec, const Variant& variant, const CacheParts& parts, const AppContext& context) {
  CacheTarget target;
  target.files.id = variant.id;
  target.files.defaults = variant.defaults;
  target.files.distilled = variant.distilled;
  if (parts.latents) target.files.vae = model_path(*spec.vae, ComponentKind::Autoencoder, context);
  if (parts.text) {
    const fs::path encoder = model_path(*spec.text_encoder, ComponentKind::TextEncoder, context);
    if (!path_exists(encoder)) fail(ErrorCode::NotFound, "the text encoder {} does not exist", encoder.string());
    target.files.text_encoder = encoder;
    target.files.tokenizer =
        spec.tokenizer ? model_path(*spec.tokenizer, ComponentKind::Tokenizer, context) : tokenizer_near(encoder);
  }
  target.model = cache_model_of(variant.config, variant.defaults.text_length);
  return target;
}

// The states of several texts at once, [T, C] each.
std::vector<std::vector<float>> encode_together(ModelSession& session, const std::vector<std::string>& texts,
                                                const Progress& progress) {
  const Models& models = session.models;
  const auto count = static_cast<int64_t>(texts.size()), slots = static_cast<int64_t>(models.text_length);
  std::vector<int32_t> ids, mask;
  for (const std::string& text : texts) {
    const PromptTokens tokens = tokenize_prompt(*models.tokenizer, text, models.text_length);
    if (!tokens.dropped.empty())
      session.log.warn("a caption has more than {} tokens; {}", models.text_length, unused_part(tokens, session.log_prompts));
    ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
    mask.insert(mask.end(), tokens.mask.begin(), tokens.mask.end());
  }
  const auto vocab = static_cast<int32_t>(models.text_encoder.config().vocab);
  if (std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab; }))
    fail(ErrorCode::Incompatible, "the tokenizer has more words than the text encoder: they do not belong together");
  const Tensor states =
      encode_tokens(models.text_encoder.get(), session, Tensor::from<int32_t>(*session.stream, DType::I32, {count, slots}, ids),
                    Tensor::from<int32_t>(*session.stream, DType::I32, {count, slots}, mask), progress.before_block());
  const std::vector<float> values = states.to_floats();
  const size_t one = values.size() / texts.size();
  std::vector<std::vector<float>> split;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(i * one);
    split.emplace_back(begin, begin + static_cast<ptrdiff_t>(one));
  }
  return split;
}

int64_t make_latents(const std::vector<Dataset>& listed, const TrainingDataset& dataset, EngineOptions engine_options,
                     CacheOptions options, const Progress& progress, const AppContext& context) {
  if (options.latent_dtype == DType::F32) engine_options.profile = Profile::Exact;
  options.encoder = encoder_name(dataset.files.vae, context);
  const auto tasks = latent_tasks(listed, dataset.model, options);
  if (tasks.empty()) return 0;
  const Engine engine(engine_options);
  const auto session = engine.open(dataset.files, progress, {.transformer = false, .text_encoder = false});
  const int64_t channels = session->models.vae->config.packed_channels();
  if (channels != kLatentChannels)
    fail(ErrorCode::Incompatible, "{} makes latents with {} channels; FLUX.2 has {}", dataset.files.vae.string(), channels,
         kLatentChannels);
  const auto encode = [&](int width, int height, const std::vector<float>& planes) {
    return to_planes(encode_picture(*session, Planes{width, height, planes}, progress).to_floats(), kLatentChannels);
  };
  make_latent_caches(listed, tasks, dataset.model, encode, options, reporting(progress, Phase::EncodeImages));
  return static_cast<int64_t>(tasks.size());
}

int64_t make_texts(const std::vector<Dataset>& listed, const TrainingDataset& dataset, const EngineOptions& engine_options,
                   CacheOptions options, const Progress& progress, const AppContext& context) {
  options.encoder = fmt::format("{} {}", encoder_name(dataset.files.text_encoder, context),
                                name_of(engine_options.encoder_quant.value_or(engine_options.quant)));
  const auto tasks = text_tasks(listed, dataset.model, options);
  if (tasks.empty()) return 0;
  const Engine engine(engine_options);
  const auto session = engine.open(dataset.files, progress, {.transformer = false, .vae = false});
  const int64_t width = session->models.text_encoder.config().output_width();
  if (width != dataset.model.text_width)
    fail(ErrorCode::Incompatible, "{} makes text states of width {}, but {} needs {}: it is the text encoder of another model",
         dataset.files.text_encoder.string(), width, dataset.model.full_name, dataset.model.text_width);
  const auto encode = [&](const std::vector<std::string>& texts) { return encode_together(*session, texts, progress); };
  make_text_caches(listed, tasks, dataset.model, encode, options, reporting(progress, Phase::Text));
  return static_cast<int64_t>(tasks.size());
}

}  // namespace

Json training_base(const fs::path& weights, Quant quant) {
  return {{"model", name_and_size(weights)}, {"quant", name_of(quant)}};
}

Json read_json_or_toml(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (is_folder(path))
    throw Error(ErrorCode::InvalidArgument, path.string() + " is a folder, not a .toml or .json file",
                fmt::format("a dataset file names it: [[datasets]] and image_directory = \"{}\"", path.string()));
  check(extension == ".json" || extension == ".toml", "{}: the file must end in .json or .toml", path.string());
  if (extension == ".json") return read_json(path);
  const std::string text = read_text_file(path);  // its errors name the file
  return in_context(path.string(), [&] { return json_of_toml(text); });
}

const std::vector<std::string>& model_version_names() {
  static const std::vector<std::string> names = {"auto", "dev", "klein-4b", "klein-base-4b", "klein-9b", "klein-base-9b"};
  return names;
}

void check_model_version(const std::string& version, const Flux2Config& config) {
  const auto variant = variant_of(version);
  if (!variant || variant->config == config) return;
  throw Error(ErrorCode::Incompatible, fmt::format("the transformer is {}, not {}", config.name(), version),
              Hint("leave out {0}, or choose another model", {unset_option("model_version")}));
}

CacheTarget find_cache_target(const RequestSpec& spec, const std::string& model_version, const CacheParts& parts,
                              const AppContext& context) {
  const auto variant = variant_of(model_version);
  RequestSpec wanted = spec;
  if (variant && !spec.model && !spec.dit) {
    const bool all_named = (!parts.latents || spec.vae) && (!parts.text || spec.text_encoder);
    if (all_named) return named_parts(spec, *variant, parts, context);
    wanted.model = variant->id;
  }
  ModelQuery query = model_query(wanted, context);
  query.need_text_encoder = parts.text;
  CacheTarget target{locate_model(query, context.log), {}};
  const Recognition recognition = recognise(target.files.transformer, context.log);
  const Flux2Config config = *required_part(recognition, ComponentKind::Transformer).flux2;
  check_model_version(model_version, config);
  target.model = cache_model_of(config, target.files.defaults.text_length);
  return target;
}

TrainingDataset open_training_dataset(const fs::path& file, const CacheTarget& target, const Log& log) {
  TrainingDataset dataset{file, {}, target.model, target.files};
  const Json content = read_json_or_toml(file);
  dataset.configs = in_context(file.string(), [&] { return read_dataset_config(content, file, log); });
  for (size_t d = 0; d < dataset.configs.size(); ++d)
    for (const auto& [name, value] : described(dataset.configs[d])) log.info("{}: {} = {}", dataset_name(d), name, value);
  return dataset;
}

TrainingDataset open_training_dataset(const fs::path& file, const ModelFiles& files, const Flux2Config& config, const Log& log) {
  return open_training_dataset(file, {files, cache_model_of(config, files.defaults.text_length)}, log);
}

MadeCaches make_missing_caches(const TrainingDataset& dataset, const EngineOptions& engine_options, const MakeCaches& what,
                               const Progress& progress, const AppContext& context) {
  const std::vector<Dataset> listed = list_datasets(dataset.configs, {.caption_variants = what.caption_variants}, context.log);
  CacheOptions options = what.options;
  options.limits = context.limits.image;
  options.log = context.log;
  MadeCaches made;
  for (const Dataset& d : listed) made.images += static_cast<int64_t>(d.items.size());
  if (what.latents) made.latents = make_latents(listed, dataset, engine_options, options, progress, context);
  if (what.text) made.texts = make_texts(listed, dataset, engine_options, options, progress, context);
  if (!what.options.keep_cache) made.removed = remove_foreign_caches(listed, dataset.model, context.log);
  return made;
}

}  // namespace flux2
