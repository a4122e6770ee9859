#include "app/training_plan.h"

#include <algorithm>
#include <chrono>

#include "app/model_choice.h"
#include "app/picture_maker.h"
#include "app/training_data.h"
#include "engine/forecast.h"
#include "engine/random_weights.h"
#include "train/data/survey.h"
#include "train/flow_step.h"
#include "train/network_args.h"
#include "train/optimiser/optimiser.h"
#include "train/whole_network.h"

namespace flux2 {

namespace {

// The batches that need most: their bucket, its references, and how many samples.
struct LargestBatch {
  LatentSize size;
  std::vector<LatentSize> references;
  int64_t samples = 0, tokens = 0;
};

LatentSize latents_of(const PixelSize& size) { return {size.height / 16, size.width / 16}; }

LoadedBatch blank_batch(const LargestBatch& shape, int64_t text_length, int64_t text_width) {
  LoadedBatch batch;
  batch.plan.size = shape.size;
  batch.plan.references = shape.references;
  batch.plan.samples.resize(static_cast<size_t>(shape.samples));
  for (size_t i = 0; i < batch.plan.samples.size(); ++i) batch.plan.samples[i].index = i;
  const auto floats = [&](int64_t per_sample) { return std::vector<float>(static_cast<size_t>(shape.samples * per_sample)); };
  batch.latents = floats(kLatentChannels * shape.size.tokens());
  for (const LatentSize& size : shape.references)
    batch.references.push_back({.size = size, .values = floats(kLatentChannels * size.tokens())});
  batch.text_length = text_length;
  batch.text_width = text_width;
  batch.text = floats(text_length * text_width);
  batch.loss_multiplier.assign(static_cast<size_t>(shape.samples), 1.0f);
  return batch;
}

// A network with its adapters and optimiser, and one batch.
class StepTrial {
 public:
  StepTrial(Flux2Transformer& network, Stream& stream, DType activations, const TrainOptions& options)
      : model_(trained(network, stream, options)),
        objective_(network, stream, {.checkpoint_blocks = options.gradient_checkpointing, .activations = activations},
                   [](const Sample&, LatentSize) {
                     return Timestep{0.5f, 0.5f, 1.0};
                   }) {
    ParameterGroup group{"unet", options.learning_rate, {}};
    for (const TrainedParameter& p : model_->parameters()) group.tensors.push_back({p.name, p.leaf.detached()});
    optimiser_ = make_optimiser(options.optimizer_type, options.optimizer_args, {std::move(group)}, 0);
  }

  void step(const LoadedBatch& batch) {
    const auto result = objective_.train(batch, static_cast<double>(batch.size()),
                                         [&](const std::vector<uint64_t>& samples) { model_->begin_pass(samples, true); });
    std::vector<Tensor> gradients;
    for (const TrainedParameter& p : model_->parameters())
      gradients.push_back(result.gradients.contains(p.leaf) ? result.gradients[p.leaf] : Tensor());
    optimiser_->step(gradients, 1.0, 1.0);
  }

 private:
  static std::unique_ptr<TrainedModel> trained(Flux2Transformer& network, Stream& stream, const TrainOptions& options) {
    if (!options.full) return std::make_unique<AdapterNetwork>(network, stream, parse_network_args(options).adapter, 0);
    const DType dtype = options.full_bf16 ? DType::BF16 : DType::F32;
    return std::make_unique<WholeNetwork>(network, stream, WholeNetworkOptions{.dtype = dtype, .freeze = options.freeze});
  }

  std::unique_ptr<TrainedModel> model_;
  FlowStep objective_;
  std::unique_ptr<Optimiser> optimiser_;
};

// Seconds of a step with this many blocks of each kind, on the real device with random weights.
double timed_step(const Engine& engine, Flux2Config config, int64_t doubles, int64_t singles, const TrainOptions& options,
                  const LoadedBatch& batch) {
  config.double_blocks = doubles;
  config.single_blocks = singles;
  const auto stream = engine.device().open_stream();
  Flux2Transformer network(config);
  RandomWeights random(stream, engine, 1999993);
  network.visit([&](const Parameter& p) { random(p); });
  random.finish();
  StepTrial trial(network, *stream, engine.activations(), options);
  double fastest = 0;
  for (int i = 0; i < 3; ++i) {  // the first one brings memory and algorithms into place
    const auto start = std::chrono::steady_clock::now();
    trial.step(batch);
    stream->wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i == 0 || seconds < fastest) fastest = seconds;
    if (seconds > 5) break;
  }
  return fastest;
}

}  // namespace

TrainingForecast plan_training(const RequestSpec& asked, const GivenTrainOptions& given, const AppContext& context) {
  const RequestSpec spec = with_model_version(asked, given);
  const ModelFiles files = choose_model(spec, context);
  const NamedWeights weights(open_weights(files.transformer, context.log), ModelPart::Transformer);
  const Flux2Config config = detect_flux2(weights);
  const TrainOptions options = resolve_train_options(given, config.hidden);
  check_train_options(options);
  check(!options.dataset_config.empty(), "training needs a dataset configuration");
  const TrainingDataset dataset = open_training_dataset(options.dataset_config, files, config, context.log);
  const Engine engine(training_engine_options(spec, options, context));

  TrainingForecast forecast{.model = files.id, .device = engine.device().name() + ": " + engine.device().description()};
  LargestBatch largest;
  int64_t batches = 0;
  for (const Dataset& listed : list_datasets(dataset.configs, {}, context.log)) {
    const DatasetSurvey survey = survey_dataset(listed, 0, context.limits.image);
    report_findings(survey.findings, context.log);
    forecast.images += survey.images();
    batches += survey.batches();
    for (const BucketCount& bucket : survey.buckets) {
      LargestBatch here{
          latents_of(bucket.size), {}, std::min(listed.config.batch_size, bucket.images * listed.config.num_repeats), 0};
      here.tokens = files.defaults.text_length + here.size.tokens();
      for (const PixelSize& r : bucket.references) {
        here.references.push_back(latents_of(r));
        here.tokens += here.references.back().tokens();
      }
      if (here.samples * here.tokens > largest.samples * largest.tokens) largest = here;
    }
  }
  check(largest.samples > 0, "the dataset contains no image");
  forecast.width = 16 * largest.size.columns;
  forecast.height = 16 * largest.size.rows;
  forecast.batch = largest.samples;
  forecast.tokens = largest.tokens;
  const int64_t steps_per_epoch = (batches + options.gradient_accumulation_steps - 1) / options.gradient_accumulation_steps;
  forecast.steps = options.max_train_epochs ? *options.max_train_epochs * steps_per_epoch : options.max_train_steps;

  const LoadedBatch batch = blank_batch(largest, files.defaults.text_length, config.text_width);
  const CountedTransformer counted = counted_transformer(engine, files);
  const auto stream = counted.device->open_stream();
  StepTrial rehearsal(*counted.network, *stream, engine.activations(), options);
  rehearsal.step(batch);
  rehearsal.step(batch);
  forecast.weights = counted.weights.total();
  forecast.pool = static_cast<int64_t>(stream->peak_bytes());
  forecast.overhead = overhead_bytes(engine);
  forecast.limit = engine.options().memory_limit > 0 ? engine.options().memory_limit : engine.device().memory().available;

  const double one_double = timed_step(engine, config, 1, 1, options, batch);
  const double two_doubles = config.double_blocks > 1 ? timed_step(engine, config, 2, 1, options, batch) : one_double;
  const double two_singles = config.single_blocks > 1 ? timed_step(engine, config, 1, 2, options, batch) : one_double;
  const double micro = one_double + static_cast<double>(config.double_blocks - 1) * std::max(0.0, two_doubles - one_double) +
                       static_cast<double>(config.single_blocks - 1) * std::max(0.0, two_singles - one_double);
  forecast.seconds_per_step = micro * static_cast<double>(options.gradient_accumulation_steps);
  return forecast;
}

}  // namespace flux2
