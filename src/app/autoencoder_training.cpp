#include "app/autoencoder_training.h"

#include <fmt/format.h>

#include "app/picture_writer.h"
#include "app/training_data.h"
#include "app/training_uploads.h"
#include "train/autoencoder_run.h"
#include "train/data/image_set.h"
#include "train/data/scene_set.h"
#include "train/log/output_names.h"
#include "train/optimiser/optimiser_names.h"
#include "weights/named_weights.h"

namespace flux2 {

namespace {

constexpr double kGibBytes = 1 << 30;

int64_t parameters_of(Vae vae) {
  int64_t count = 0;
  vae.visit([&](const Parameter& p) { count += p.shape.numel(); });
  return count;
}

// Bytes that an optimiser keeps for each parameter.
int64_t slot_bytes(const std::string& type) {
  switch (optimiser_named(type)) {
    case OptimiserKind::AdamW:
    case OptimiserKind::Prodigy:
    case OptimiserKind::ScheduleFree: return 8;
    case OptimiserKind::AdEmaMix: return 12;
    case OptimiserKind::Lion: return 4;
    case OptimiserKind::AdamW8bit: return 2;
    case OptimiserKind::AdEmaMix8bit: return 3;
    case OptimiserKind::Lion8bit: return 1;
    case OptimiserKind::Came: return 4;
    case OptimiserKind::Adafactor:
    case OptimiserKind::Sgd: return 0;
  }
  return 0;
}

}  // namespace

void check_training_memory(const std::string& part, int64_t parameters, const TrainOptions& options, const Engine& engine) {
  const int64_t weight = options.full_bf16 ? 2 : 4;
  const int64_t each = weight + 4 + slot_bytes(options.optimizer_type) + (options.ema_decay ? 4 : 0);
  const int64_t limit = engine.options().memory_limit > 0 ? engine.options().memory_limit : engine.device().memory().available;
  if (limit <= 0 || each * parameters <= limit) return;
  throw Error(
      ErrorCode::OutOfMemory,
      fmt::format("training {} needs at least {:.1f} GiB for {:.2f} billion parameters, their gradients and the optimiser, "
                  "and {:.1f} GiB are available",
                  part, static_cast<double>(each * parameters) / kGibBytes, static_cast<double>(parameters) / 1e9,
                  static_cast<double>(limit) / kGibBytes),
      Hint("train an adapter of the transformer instead, or choose a smaller model"));
}

TrainingResult train_autoencoder(const RequestSpec& spec, const TrainOptions& options, const ModelFiles& files,
                                 const Flux2Config& config, const AppContext& context, const TrainingFrontEnd& front,
                                 const std::optional<RankPlace>& place) {
  check_autoencoder_options(options);
  check(!place || place->size == 1, "the autoencoder is trained in one process; start only one");
  const TrainingDataset dataset = open_training_dataset(options.dataset_config, files, config, context.log);
  const Engine engine(training_engine_options(spec, options, context));
  const NamedWeights header(open_weights(files.vae, context.log), ModelPart::Autoencoder);
  check_training_memory("this autoencoder", parameters_of(Vae(detect_vae(header))), options, engine);
  const auto seed = static_cast<uint64_t>(options.seed.value_or(0));
  const TrainingSet data =
      are_scenes(dataset.configs)
          ? scene_image_set(dataset.configs, dataset.model, {.crop = options.vae_crop, .seed = seed})
          : image_training_set(dataset.configs, dataset.model,
                               {.crop = options.vae_crop, .seed = seed, .limits = context.limits.image, .log = context.log});
  const auto uploads = TrainingUploads::create(options, context);
  const auto session = engine.open(files, front.progress, {.transformer = false, .text_encoder = false});

  AutoencoderInputs inputs;
  inputs.autoencoder = session->models.vae;
  inputs.source = session->model->vae.weights;
  inputs.stream = session->stream;
  inputs.activations = session->activations;
  inputs.data = &data;
  inputs.base = training_base(files.vae, Quant::None);
  inputs.facts.sd_model_name = files.transformer.filename().string();
  inputs.facts.vae_name = files.vae.filename().string();
  inputs.device_name = engine.device().description();
  inputs.program = program_version();
  inputs.stop = front.stop;
  inputs.on_event = [&](const Json& event) {
    if (front.on_event) front.on_event(event);
    if (uploads) uploads->at(event);
  };
  inputs.log = context.log;
  inputs.memory = [&] {
    const MemoryUse use = engine.memory_use(*session);
    return std::pair{engine.device().is_host() ? 0.0 : static_cast<double>(use.peak_device) / kGibBytes,
                     static_cast<double>(use.peak_resident) / kGibBytes};
  };
  AutoencoderRun run(std::move(inputs), options);
  const TrainingRun::Totals totals = run.totals();
  if (front.tell) {
    front.tell(length_text(data.training_items(), data.batches_per_epoch(), totals));
    front.tell(
        fmt::format("the autoencoder is trained: {:.1f} million parameters", static_cast<double>(totals.parameters) / 1e6));
  }
  TrainingResult result;
  result.end = run.run();
  if (uploads) uploads->finish();
  result.file = run.last_file();
  result.report = OutputNames{options.output_dir, options.output_name}.report();
  return result;
}

}  // namespace flux2
