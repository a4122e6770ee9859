#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "train/data/training_set.h"
#include "train/log/retention.h"
#include "train/log/run_facts.h"
#include "train/log/run_log.h"
#include "train/optimiser/learning_rate.h"
#include "train/train_options.h"

// What every kind of training run derives from its options.
namespace flux2 {

LearningRateOptions learning_rate_options(const TrainOptions& options, int64_t total_steps);
Retention retention_of(const TrainOptions& options);

// How far a run is when a file is written.
struct RunPlace {
  int64_t step = 0, epoch = 0;
  int64_t total_steps = 0, total_epochs = 0;
};
// The facts of a run for the metadata of a file that is written now. `known` holds those about model and files. facts.network
// stays as it is in `known`.
RunFacts facts_at(const RunPlace& place, RunFacts known, const TrainOptions& options, const TrainingSet& data);

// The numbers of an optimiser as a state keeps them: element i of a list is "name/i".
std::map<std::string, double> flat_scalars(const Json& scalars);
Json scalars_from(const std::map<std::string, double>& flat);

double unix_now();  // seconds

}  // namespace flux2
