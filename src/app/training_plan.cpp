#include "app/training_plan.h"

#include <algorithm>
#include <chrono>

#include "app/image_prompt_training.h"
#include "app/model_choice.h"
#include "app/picture_maker.h"
#include "app/training_data.h"
#include "engine/random_weights.h"
#include "train/data/survey.h"
#include "train/step_trial.h"

namespace flux2 {

namespace {

LatentSize latents_of(const PixelSize& size) { return {size.height / 16, size.width / 16}; }

// What most blocks do: a few blocks are measured.
BlockMemory usual_memory(const std::vector<BlockMemory>& memory) {
  const auto is_same = [](const BlockMemory& a, const BlockMemory& b) {
    return a.recompute == b.recompute && a.keep_attention == b.keep_attention;
  };
  const auto count = [&](const BlockMemory& m) {
    return std::count_if(memory.begin(), memory.end(), [&](const BlockMemory& other) { return is_same(m, other); });
  };
  return *std::max_element(memory.begin(), memory.end(),
                           [&](const BlockMemory& x, const BlockMemory& y) { return count(x) < count(y); });
}

// Seconds of a step with this many blocks of each kind, on the real device with random weights.
double timed_step(const Engine& engine, Flux2Config config, int64_t doubles, int64_t singles, const TrainOptions& options,
                  const BlockMemory& memory, const BatchShape& shape) {
  config.double_blocks = doubles;
  config.single_blocks = singles;
  const auto stream = engine.device().open_stream();
  Flux2Transformer network(config);
  RandomWeights random(stream, engine, 1999993);
  network.visit([&](const Parameter& p) { random(p); });
  random.finish();
  StepTrial trial(network, stream, engine.activations(), options,
                  std::vector<BlockMemory>(static_cast<size_t>(doubles + singles), memory), shape, false);
  double fastest = 0;
  for (int i = 0; i < 3; ++i) {  // the first one brings memory and algorithms into place
    const auto start = std::chrono::steady_clock::now();
    trial.step();
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
  const ModelFiles files = choose_model_to_train(spec, context);
  const NamedWeights weights(open_weights(files.transformer, context.log), ModelPart::Transformer);
  const Flux2Config config = detect_flux2(weights);
  const TrainOptions options = resolve_train_options(given, config.hidden);
  check(options.train.empty() || options.train == "transformer", "the forecast is for training the transformer, not for {}",
        options.train);
  check_train_options(options);
  check(!options.dataset_config.empty(), "training needs a dataset file, for example data.toml");
  const TrainingDataset dataset = open_training_dataset(options.dataset_config, files, config, context.log);
  const Engine engine(training_engine_options(spec, options, context));

  TrainingForecast forecast{.model = files.id, .device = engine.device().name() + ": " + engine.device().description()};
  const int64_t feature_width = trains_image_prompt(options) ? planned_image_prompt(options, config, context).feature_width : 0;
  BatchShape largest;
  int64_t batches = 0;
  for (const Dataset& listed : list_datasets(dataset.configs, {}, context.log)) {
    const DatasetSurvey survey = survey_dataset(listed, 0, context.limits.image);
    report_findings(survey.findings, context.log);
    if (listed.config.validation) continue;  // no step has its images
    forecast.images += survey.images();
    batches += survey.batches();
    forecast.buckets.insert(forecast.buckets.end(), survey.buckets.begin(), survey.buckets.end());
    for (const BucketCount& bucket : survey.buckets) {
      BatchShape here{latents_of(bucket.size),
                      {},
                      std::min(listed.config.batch_size, bucket.images * listed.config.num_repeats),
                      files.defaults.text_length,
                      config.text_width,
                      feature_width};
      for (const PixelSize& r : bucket.references) here.references.push_back(latents_of(r));
      if (here.samples * here.tokens() > largest.samples * largest.tokens()) largest = here;
    }
  }
  check(largest.samples > 0, "the dataset contains no image");
  forecast.width = 16 * largest.size.columns;
  forecast.height = 16 * largest.size.rows;
  forecast.batch = largest.samples;
  forecast.batches = batches;
  forecast.tokens = largest.tokens();
  const int64_t steps_per_epoch = (batches + options.gradient_accumulation_steps - 1) / options.gradient_accumulation_steps;
  forecast.steps = options.max_train_epochs ? *options.max_train_epochs * steps_per_epoch : options.max_train_steps;

  forecast.memory = plan_training_memory(engine, files, spec, options, largest);
  const BlockMemory usual = usual_memory(forecast.memory.block_memory);
  const double one_double = timed_step(engine, config, 1, 1, options, usual, largest);
  const double two_doubles = config.double_blocks > 1 ? timed_step(engine, config, 2, 1, options, usual, largest) : one_double;
  const double two_singles = config.single_blocks > 1 ? timed_step(engine, config, 1, 2, options, usual, largest) : one_double;
  const double micro = one_double + static_cast<double>(config.double_blocks - 1) * std::max(0.0, two_doubles - one_double) +
                       static_cast<double>(config.single_blocks - 1) * std::max(0.0, two_singles - one_double);
  forecast.seconds_per_step = micro * static_cast<double>(options.gradient_accumulation_steps);
  return forecast;
}

}  // namespace flux2
