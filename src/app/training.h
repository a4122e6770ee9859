#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/context.h"
#include "app/settings.h"
#include "engine/engine.h"
#include "pipeline/progress.h"
#include "record/request_spec.h"
#include "train/ranks/rank_place.h"
#include "train/sample_prompts.h"
#include "train/training_run.h"

namespace flux2 {

// The training options that were given, by name with underscores; a list has several values.
using GivenTrainOptions = std::map<std::string, std::vector<std::string>>;

// What was given together with the values of the configuration file that config_file names; what was given has priority.
GivenTrainOptions with_config_file(const GivenTrainOptions& given);

// The sample prompts of a .json, .toml or text file. An empty path has none.
std::vector<SamplePrompt> read_sample_prompts(const std::string& path);

// "4 images, 4 batches per epoch, 4 steps per epoch, 1 epoch, 1 step in all"
std::string length_text(int64_t images, int64_t batches_per_epoch, const TrainingRun::Totals& totals);

// Defaults, then the preset for a transformer of that width, then the configuration file, then what was given.
TrainOptions resolve_train_options(const GivenTrainOptions& given, int64_t hidden);

// The request with what the configuration file says about model and engine (dit, vae, …), and with the model that model_version
// names: a published model, or beside a file only whether it is a base model.
RequestSpec with_model_version(RequestSpec spec, const GivenTrainOptions& given);

// The request of a training run: it chooses model, device and memory. Options of training such as preset and seed have the names
// of request fields but another meaning, so these fields are left out.
RequestSpec training_request(const Settings& settings);

// The engine for training: the CPU computes in f32 and a GPU in bf16 unless a profile or mixed_precision says otherwise.
EngineOptions training_engine_options(RequestSpec spec, const TrainOptions& options, const AppContext& context);

// What a front end wants to know, and how it stops a run.
struct TrainingFrontEnd {
  Progress progress;                                  // of loading, caching and sample images
  std::function<void(const Json& event)> on_event;    // of the run (train/log/run_log.h)
  std::function<StopRequest()> stop;                  // asked after every step, on the thread that trains; it may take its time
  std::function<void()> before_block = {};            // may end a step early by throwing Cancelled; the step is then repeated
  std::function<void(const std::string& line)> tell;  // what a person reads before the first step
};

// Trains as asked: makes the caches that are missing, encodes the sample prompts, loads the transformer and runs. `spec` chooses
// the model, the device and the memory limits. `place` is that of this process among several; without it the environment decides.
struct TrainingResult {
  RunEnd end;
  std::filesystem::path file;    // the adapter; empty if none was written
  std::filesystem::path report;  // report.html
};
TrainingResult train(const RequestSpec& spec, const GivenTrainOptions& given, const AppContext& context,
                     const TrainingFrontEnd& front, std::optional<RankPlace> place = {});

}  // namespace flux2
