#include "app/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "app/autoencoder_training.h"
#include "app/distilled_model.h"
#include "app/encoder_training.h"
#include "app/image_prompt_training.h"
#include "app/model_choice.h"
#include "app/picture_maker.h"
#include "app/picture_writer.h"
#include "app/safety.h"
#include "app/scene_training.h"
#include "app/training_data.h"
#include "app/training_download.h"
#include "app/training_memory.h"
#include "app/training_ranks.h"
#include "app/training_uploads.h"
#include "base/json.h"
#include "base/system_memory.h"
#include "base/text.h"
#include "engine/weight_stream.h"
#include "image/read_image.h"
#include "pipeline/text_states.h"
#include "pipeline/text_to_image.h"
#include "record/field_values.h"
#include "record/request_fields.h"
#include "train/data/scene_set.h"
#include "train/log/output_names.h"
#include "train/log/report.h"
#include "train/optimiser/timesteps.h"
#include "train/sample_prompts.h"

namespace flux2 {

namespace {

constexpr double kGib = 1 << 30;

// The values of a configuration file; section names have no meaning.
void add_values(const Json& table, GivenTrainOptions& values) {
  for (const auto& [key, value] : table.items()) {
    if (value.is_object()) {
      add_values(value, values);
      continue;
    }
    auto& texts = values[key];
    texts.clear();
    for (const Json& item : value.is_array() ? value : Json::array({value}))
      texts.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  }
}

GivenTrainOptions config_file_of(const GivenTrainOptions& given) {
  GivenTrainOptions values;
  const auto named = given.find("config_file");
  if (named == given.end()) return values;
  std::string path = named->second.back();
  if (std::filesystem::path(path).extension().empty()) path += ".toml";
  add_values(read_json_or_toml(path), values);
  return values;
}

// Settings of the model and of the engine, which a configuration file of musubi-tuner has among its options: dit, vae, …
const Field* model_setting(const std::string& name) {
  if (find_train_field(name)) return nullptr;
  const Field* field = find_field(name);
  return field && (field->chooses_model || field->loads_model) ? field : nullptr;
}

// `where` is the file that sets them; empty for options of the request itself.
void apply(const GivenTrainOptions& values, const std::string& where, TrainOptions& options) {
  std::vector<std::string> names;
  for (const TrainField& f : train_fields()) names.push_back(f.name);
  for (const IgnoredTrainOption& o : ignored_train_options()) names.push_back(o.name);
  for (const auto& [name, texts] : values) {
    if (const TrainField* field = find_train_field(name)) {
      if (where.empty()) set_train_option(options, *field, texts);
      else in_context(where, [&, &t = texts] { set_train_option(options, *field, t); });
      continue;
    }
    const std::string prefix = where.empty() ? "" : where + ": ";
    for (const IgnoredTrainOption& o : ignored_train_options())
      check(!o.refused || o.name != name, "{}{} is not supported: {}", prefix, name, o.reason);
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = nearest_word(name, names);
    throw Error(ErrorCode::InvalidArgument, fmt::format("{}unknown option \"{}\"", prefix, name),
                near.empty() ? Hint() : Hint(fmt::format("did you mean {}?", near)));
  }
}

// The sample prompts with their text states, so that the text encoder is not needed any more.
struct EncodedPrompt {
  SamplePrompt sample;
  ResolvedRequest resolved;
};

// Sample images are small and quick unless a prompt asks for more, as in musubi-tuner.
constexpr int64_t kSampleSide = 256, kSampleSteps = 20;

RequestSpec sample_spec(const RequestSpec& base, const SamplePrompt& sample, const ModelFiles& files, uint64_t run_seed) {
  RequestSpec spec;
  spec.device = base.device;
  spec.prompt = sample.prompt;
  spec.width = sample.width.value_or(std::min<int64_t>(kSampleSide, files.defaults.width));
  spec.height = sample.height.value_or(std::min<int64_t>(kSampleSide, files.defaults.height));
  for (auto* side : {&spec.width, &spec.height}) *side = std::max<int64_t>(16, **side / 16 * 16);
  spec.steps = sample.steps.value_or(std::min<int64_t>(kSampleSteps, files.defaults.steps));
  spec.seed = static_cast<int64_t>(sample.seed.value_or(run_seed));
  spec.shift = sample.flow_shift;
  if (files.defaults.guidance_kind == ModelDefaults::TrueCfg) {
    spec.negative = sample.negative;
    spec.cfg = sample.guidance;
  } else if (files.defaults.guidance_kind == ModelDefaults::Embedded) {
    spec.guidance = sample.guidance;
  }
  if (!sample.references.empty()) spec.input = sample.references;
  return spec;
}

Tensor host_states(Session& session, const std::string& prompt, const Progress& progress) {
  const Tensor states = text_states(session, prompt, "text", progress);
  const std::vector<float> values = states.to_floats();
  return Tensor::host_copy(values.data(), DType::F32, {states.dim(1), states.dim(2)});
}

double number_in_text(const std::string& text) {
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(fault == std::errc() && end == text.data() + text.size(), "base_weights_multiplier: \"{}\" is not a number", text);
  return value;
}

RunFacts facts_of(const ModelFiles& files) {
  RunFacts facts;
  facts.sd_model_name = files.transformer.filename().string();
  if (!files.vae.empty()) facts.vae_name = files.vae.filename().string();
  return facts;
}

// The batch of an epoch that needs most memory.
BatchShape largest_batch(const TrainingSet& data, const ModelFiles& files, const Flux2Config& config, uint64_t seed,
                         int64_t feature_width) {
  BatchShape largest;
  for (const BatchPlan& plan : data.epoch(seed, 0)) {
    const BatchShape here{
        plan.size,         plan.references, static_cast<int64_t>(plan.samples.size()), files.defaults.text_length,
        config.text_width, feature_width};
    if (here.samples * here.tokens() > largest.samples * largest.tokens()) largest = here;
  }
  return largest;
}

}  // namespace

std::vector<SamplePrompt> read_sample_prompts(const std::string& path) {
  if (path.empty()) return {};
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".json" || extension == ".toml") {
    const Json content = read_json_or_toml(path);  // its errors name the file
    return in_context(path, [&] { return sample_prompts_from_json(content); });
  }
  const std::string text = read_text_file(path);
  return in_context(path, [&] { return sample_prompts_from_text(text); });
}

GivenTrainOptions with_config_file(const GivenTrainOptions& given) {
  GivenTrainOptions all = given;
  all.merge(config_file_of(given));
  all.erase("config_file");
  return all;
}

TrainOptions resolve_train_options(const GivenTrainOptions& given, int64_t hidden) {
  TrainOptions options;
  GivenTrainOptions file = config_file_of(given);
  std::erase_if(file, [](const auto& value) { return model_setting(value.first) != nullptr; });  // see with_model_version()
  std::string preset;
  for (const GivenTrainOptions* values : {static_cast<const GivenTrainOptions*>(&file), &given})
    if (const auto named = values->find("preset"); named != values->end()) preset = named->second.back();
  if (!preset.empty()) {
    GivenTrainOptions values;
    for (const auto& [name, value] : train_preset(preset, hidden)) values[name] = {value};
    apply(values, "preset " + preset, options);
  }
  if (!file.empty()) apply(file, given.at("config_file").back(), options);
  apply(given, "", options);
  if (!options.train.empty()) options.full = true;
  std::vector<std::string> names;
  for (const GivenTrainOptions* values : {static_cast<const GivenTrainOptions*>(&file), &given})
    for (const auto& [name, texts] : *values)
      if (const TrainField* field = find_train_field(name)) names.push_back(field->name);
  check_given_train_options(options, names);
  if (trains_image_prompt(options) && std::find(names.begin(), names.end(), "learning_rate") == names.end())
    options.learning_rate = kUsualImagePromptRate;
  return options;
}

RequestSpec with_model_version(RequestSpec spec, const GivenTrainOptions& given) {
  GivenTrainOptions values = config_file_of(given);
  for (const auto& [name, texts] : values)
    if (const Field* field = model_setting(name); field && !get_value(spec, *field))
      set_value(spec, *field, parse_value(*field, texts, fmt::format("{}: {}", given.at("config_file").back(), name)));
  if (const auto version = given.find("model_version"); version != given.end()) values["model_version"] = version->second;
  const auto named = values.find("model_version");
  if (named == values.end() || named->second.back() == "auto") return spec;
  TrainOptions checked;
  set_train_option(checked, *find_train_field("model_version"), named->second);
  const bool base = checked.model_version == "dev" || checked.model_version.find("base") != std::string::npos;
  if (spec.dit) spec.base = spec.base.value_or(base);
  else if (!spec.model) spec.model = "flux.2-" + checked.model_version;
  return spec;
}

RequestSpec training_request(const Settings& settings) {
  SettingLayer layer;
  for (const Field& field : request_fields()) {
    const std::string name = option_name(field);
    if (const Setting* set = settings.find(name); set && !find_train_field(field.name)) layer[name] = *set;
  }
  Settings chosen;
  chosen.add(std::move(layer));
  return spec_of(chosen);
}

EngineOptions training_engine_options(RequestSpec spec, const TrainOptions& options, const AppContext& context) {
  if (options.fp8_base && !spec.quant) spec.quant = "fp8";
  EngineOptions settings = engine_options(spec, context);
  // Gradients are those of attention in 16 bits.
  if (spec.attention == "fp8") context.log.warn("{} fp8: training does not compute attention in fp8", spec.origin("attention"));
  settings.attention = AttentionBits::Sixteen;
  if (options.deterministic) {
    check(!spec.profile || *spec.profile == "exact", "deterministic needs profile exact, not {}", spec.profile.value_or(""));
    settings.profile = Profile::Exact;
  } else if (!spec.profile) {
    const bool host = Engine(settings).device().is_host();
    const bool rounds = options.mixed_precision.empty() ? !host : options.mixed_precision == "bf16";
    settings.profile = rounds ? Profile::Fast : Profile::Exact;
  }
  return settings;
}

std::string length_text(int64_t images, int64_t batches_per_epoch, const TrainingRun::Totals& totals) {
  const auto counted = [](int64_t n, const char* thing, const char* ending) {
    return fmt::format("{} {}{}", n, thing, n == 1 ? "" : ending);
  };
  return fmt::format("{}, {} per epoch, {} per epoch, {}, {} in all", counted(images, "image", "s"),
                     counted(batches_per_epoch, "batch", "es"), counted(totals.steps_per_epoch, "step", "s"),
                     counted(totals.epochs, "epoch", "s"), counted(totals.steps, "step", "s"));
}

TrainingResult train(const RequestSpec& asked, const GivenTrainOptions& given, const AppContext& context,
                     const TrainingFrontEnd& front, std::optional<RankPlace> place) {
  if (!place) place = rank_from_environment();
  const RequestSpec spec = on_own_gpu(with_model_version(asked, given), place);
  const ModelFiles files = choose_model_to_train(spec, context);
  const Flux2Config config = detect_flux2(NamedWeights(open_weights(files.transformer, context.log), ModelPart::Transformer));
  TrainOptions options = resolve_train_options(given, config.hidden);
  if (options.model_version != "auto")
    if (const auto variant = find_variant(options.model_version); variant && variant->config != config)
      context.log.warn("{} is not the size of {}; training goes by the file", files.transformer.string(), options.model_version);
  check_train_options(options);
  check_swapped_blocks(spec, options, config);
  check_output_name(options.output_name);
  check(!options.output_preservation || !options.require_cache,
        "output_preservation_class must be encoded, but require_cache forbids the text encoder");
  if (files.kv && !options.kv_references)
    context.log.warn("{} was trained with kv_references; training without it teaches the model another rule", files.id);
  check(!options.dataset_config.empty(), "training needs a dataset file, for example data.toml");
  if (options.train == "vae") return train_autoencoder(spec, options, files, config, context, front, place);
  if (files.distilled && !options.force)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("{} is distilled; adapters trained on a distilled model give broken images", files.id),
                Hint("train on the base model and use the adapter with either, or insist with {0}", {set_option("force")}));
  EngineOptions engine_settings = training_engine_options(spec, options, context);
  if (options.log_with == "wandb" || options.log_with == "all")
    context.log.warn("wandb's files are not written; TensorBoard files and JSON lines are");

  // Prompts are read before anything is computed, so that mistakes in them cost no time.
  const std::vector<SamplePrompt> samples = read_sample_prompts(options.sample_prompts);
  const bool has_image_prompts =
      std::any_of(samples.begin(), samples.end(), [](const SamplePrompt& s) { return !s.image_prompts.empty(); });
  check(trains_image_prompt(options) || !has_image_prompts,
        "a sample prompt has an image prompt (ip), which only an image-prompt adapter can use; leave it out");
  if (trains_image_prompt(options) && !samples.empty() && !has_image_prompts)
    context.log.warn("no sample prompt has an image prompt (ip), so the sample images do not show what is learnt");
  const TrainingDataset dataset = open_training_dataset(options.dataset_config, files, config, context.log);
  for (size_t i = 0; i < dataset.configs.size(); ++i)
    if (dataset.configs[i].has_image_prompts() && !trains_image_prompt(options))
      context.log.warn("{}: the keys for image prompts have no effect, because kind is not image_prompt", dataset_name(i));
  if (!options.show_timesteps.empty()) {
    const PixelSize size = dataset.configs.front().resolution;
    const TimestepSampler sampler(timestep_options(options));
    for (const std::string& line : timestep_histogram(sampler, 0, size.height / 16, size.width / 16)) front.tell(line);
    return {};
  }
  if (const auto state = state_on_hub(options)) {
    options.resume = download_state(*state, options.huggingface_token, context, front.progress.cancelled).string();
    options.resume_from_huggingface.reset();
  }
  const std::unique_ptr<ProcessGroup> group = join_ranks(options, place);

  const bool scenes = are_scenes(dataset.configs), trains_encoder = options.train == "transformer+text_encoder";
  check(scenes || !options.distill_steps, "distill_steps needs a dataset of drawn scenes");
  check(!scenes || !options.output_preservation, "output_preservation needs a dataset of files, not of drawn scenes");
  std::optional<EncoderTraining> encoder_training;  // if the text encoder runs in every step
  if (scenes || trains_encoder)
    encoder_training = prepare_encoder_training(dataset, config, options, Engine(engine_settings), context.log);

  std::shared_ptr<const TrainingImageEncoder> image_prompts;
  if (trains_image_prompt(options)) image_prompts = std::make_shared<const TrainingImageEncoder>(options, config, context);

  // One process makes the caches; the others wait for it.
  const bool first = !group || group->rank() == 0;
  const auto uploads = first ? TrainingUploads::create(options, context) : nullptr;
  if (!options.require_cache && first && !scenes)
    make_missing_caches(
        dataset, engine_settings,
        {.latents = true, .text = !encoder_training, .options = {.keep_cache = options.keep_cache, .any_form = true}},
        front.progress, context);
  if (group) group->barrier();
  TrainingSet data =
      scenes ? open_scenes(dataset, engine_settings, *encoder_training, image_prompts, front.progress, context)
             : TrainingSet(dataset.configs, dataset.model, encoder_training ? encoder_training->captions : nullptr, context.log);

  if (image_prompts && !scenes) data.set_features(image_prompts->of_items(data, dataset, front.progress, context));

  std::vector<EncodedPrompt> prompts;
  const auto run_seed = static_cast<uint64_t>(options.seed.value_or(42));
  Tensor class_text;
  const bool makes_samples = !samples.empty() && first;
  if (makes_samples || options.output_preservation) {
    const Engine engine(engine_settings);
    const auto session = engine.open(files, front.progress, {.transformer = false, .vae = false});
    if (options.output_preservation) class_text = host_states(*session, options.output_preservation_class, front.progress);
    for (const SamplePrompt& sample : makes_samples ? samples : std::vector<SamplePrompt>{}) {
      EncodedPrompt prompt{sample, resolve(sample_spec(spec, sample, files, run_seed), files, Task::Generate, context.log,
                                           nullptr, context.limits)};
      if (context.safety) context.safety->check_request(prompt.resolved, files, front.progress.cancelled);
      Request& request = prompt.resolved.request;
      request.reuse_reference_keys = options.kv_references && !request.references.empty();
      request.references_at_zero = options.zero_cond_t && !options.kv_references && !request.references.empty();
      request.given_text = host_states(*session, sample.prompt, front.progress);
      if (request.cfg) request.given_negative = host_states(*session, request.negative, front.progress);
      for (const std::string& path : sample.image_prompts)
        request.image_prompts.push_back(
            {.feature = image_prompts->of(read_image(path, {.limits = context.limits.image, .log = context.log}))});
      prompts.push_back(std::move(prompt));
    }
  }

  for (size_t i = 0; i < options.base_weights.size(); ++i) {
    double strength = 1;
    if (i < options.base_weights_multiplier.size()) strength = number_in_text(options.base_weights_multiplier[i]);
    engine_settings.adapters.push_back({.path = options.base_weights[i], .strength = strength});
  }
  engine_settings.adapter_mode = AdapterMode::Merge;
  TrainingInputs inputs;
  WorkingBytes working;
  {
    const TrainingMemory memory = plan_training_memory(
        Engine(engine_settings), files, spec, options,
        largest_batch(data, files, config, run_seed, image_prompts ? image_prompts->config().feature_width : 0));
    if (!memory.fits())
      context.log.warn("training needs about {:.1f} GiB of memory, but only {:.1f} GiB are available",
                       static_cast<double>(memory.peak()) / kGib, static_cast<double>(memory.limit) / kGib);
    if (first && front.tell && (!memory.streamed.empty() || !activation_policy_of(options))) front.tell(memory.str());
    inputs.block_memory = memory.block_memory;
    working = {memory.pool, memory.pool};
    engine_settings.streamed_blocks = 0;
    engine_settings.chosen_blocks = memory.streamed;
    if (!memory.on_host) engine_settings.offload = Offload::None;  // no other blocks are streamed
  }
  const Engine engine(engine_settings);
  const auto session = engine.open(files, front.progress,
                                   {.text_encoder = encoder_training.has_value(), .vae = !prompts.empty(), .working = working});
  {
    const std::shared_ptr<const Flux2Transformer> base = session->models.transformer.get();
    if (auto* streamed = dynamic_cast<WeightStream*>(base->schedule.get())) streamed->expect_gradients(true);
    inputs.network = std::make_shared<Flux2Transformer>(*base);
  }
  // The run makes copies of the weights that it trains; nothing else shall keep the originals.
  if (options.full) {
    session->models.transformer.let_go();
    session->adapters->let_go();
    session->model->models.transformer.let_go();
  }
  inputs.stream = session->stream;
  inputs.activations = session->activations;
  inputs.data = &data;
  inputs.facts = facts_of(files);
  inputs.base = training_base(files.transformer, engine_settings.quant);
  inputs.class_text = class_text;
  if (encoder_training && !trains_encoder) {
    inputs.fixed_text_encoder = session->models.text_encoder.get();
    inputs.empty_caption = encoder_training->tokenise("");
  }
  if (trains_encoder) {
    inputs.text_encoder = session->models.text_encoder.get();
    inputs.text_encoder_source = session->model->text_encoder.weights;
    inputs.use_text_encoder = [&](const std::shared_ptr<const TextEncoder>& encoder) {
      const auto encoded = [&](const std::string& text) {
        return states_of(*encoder_training, *encoder, text, *session->stream, session->activations);
      };
      for (EncodedPrompt& prompt : prompts) {
        Request& request = prompt.resolved.request;
        request.given_text = encoded(prompt.sample.prompt);
        if (request.cfg) request.given_negative = encoded(request.negative);
      }
    };
  }
  if (image_prompts) {
    inputs.image_prompt = image_prompts->config();
    inputs.use_image_prompt = [&](const std::shared_ptr<const ImagePromptNetwork>& network) { session->image_prompt = network; };
  }
  inputs.device_name = engine.device().description();
  inputs.program = program_version();
  inputs.ranks = group.get();
  inputs.device_sums = open_gradient_sums(options, group.get(), session->stream, context.log);
  inputs.stop = front.stop;
  inputs.before_block = front.before_block;
  inputs.on_event = front.on_event;
  if (uploads)
    inputs.on_event = [&](const Json& event) {
      if (front.on_event) front.on_event(event);
      uploads->at(event);
    };
  inputs.log = context.log;
  inputs.memory = [&] {
    const MemoryUse use = engine.memory_use(*session);
    return std::pair{engine.device().is_host() ? 0.0 : static_cast<double>(use.peak_device) / kGib,
                     static_cast<double>(use.peak_resident) / kGib};
  };
  const OutputNames names{options.output_dir, options.output_name};
  if (!prompts.empty())
    inputs.make_samples = [&](const SampleMoment& moment, const std::shared_ptr<const Flux2Transformer>& network) {
      const auto kept = session->models.transformer;
      session->models.transformer = {network->config, [network] { return network; }};
      std::vector<RunSample> made;
      try {
        for (size_t i = 0; i < prompts.size(); ++i) {
          const EncodedPrompt& prompt = prompts[i];
          const std::filesystem::path file = names.sample({.by_epoch = moment.by_epoch,
                                                           .number = moment.by_epoch ? moment.epoch : moment.step,
                                                           .index = static_cast<int64_t>(i),
                                                           .unix_time = static_cast<int64_t>(std::time(nullptr)),
                                                           .seed = prompt.sample.seed});
          std::filesystem::create_directories(file.parent_path());
          PictureWriter writer(prompt.resolved.spec);
          bool written = false;
          text_to_image(*session, prompt.resolved.request, front.progress, [&](Picture picture) {
            if (context.safety && context.safety->checks_output() &&
                context.safety->judge_output(picture, prompt.resolved, files, false, front.progress.cancelled) ==
                    Safety::Fate::Refused)
              return context.log.warn("a sample image was refused by the safety check");
            writer.write(picture, prompt.resolved.record, file.string());
            written = true;
          });
          if (!written) continue;
          made.push_back({.step = moment.step,
                          .epoch = moment.epoch,
                          .index = static_cast<int64_t>(i),
                          .file = file,
                          .prompt = prompt.sample.prompt,
                          .seed = prompt.resolved.request.seed});
        }
      } catch (...) {
        session->models.transformer = kept;
        session->captured_work.clear();
        throw;
      }
      session->models.transformer = kept;
      session->captured_work.clear();  // the next images have other adapters
      return made;
    };

  TrainingRun run(std::move(inputs), options);
  const TrainingRun::Totals totals = run.totals();
  if (front.tell && first) {
    front.tell(length_text(data.training_items(), data.batches_per_epoch(), totals));
    const std::string size = fmt::format("{:.1f} million parameters", static_cast<double>(totals.parameters) / 1e6);
    if (image_prompts) {
      front.tell(fmt::format("an {} is trained: {}", image_prompts->config().name(), size));
    } else if (options.full) {
      front.tell(fmt::format("the whole transformer{} is trained: {}", trains_encoder ? " with its text encoder" : "", size));
    } else {
      const double scale = options.network_alpha == 0 ? 1.0 : options.network_alpha / static_cast<double>(options.network_dim);
      front.tell(fmt::format("{} layers with {}; the change is multiplied by {:.3g}", totals.modules, size, scale));
    }
  }
  TrainingResult result;
  result.end = run.run();
  if (uploads) uploads->finish();
  result.file = run.last_file();
  if (options.distill_steps && result.end.reason == RunEndReason::Done && first)
    result.file = write_distilled_model(files, result.file, options);
  result.report = names.report();
  return result;
}

}  // namespace flux2
