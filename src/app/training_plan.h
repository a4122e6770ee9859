#pragma once

#include <string>
#include <vector>

#include "app/training.h"
#include "app/training_memory.h"
#include "train/data/survey.h"

namespace flux2 {

// What a training run will need, before anything is trained: memory by rehearsing one step on a device that counts and computes
// nothing, time by training one block of each kind for a moment.
struct TrainingForecast {
  std::string model, device;
  int64_t images = 0, width = 0, height = 0;  // of the largest bucket
  int64_t batch = 0, tokens = 0;              // of its batches; tokens of one sample
  int64_t steps = 0, batches = 0;             // batches of an epoch
  std::vector<BucketCount> buckets;           // of all datasets
  TrainingMemory memory;
  double seconds_per_step = 0;  // without the time that streaming blocks adds

  double seconds() const { return seconds_per_step * static_cast<double>(steps); }
};
TrainingForecast plan_training(const RequestSpec& spec, const GivenTrainOptions& given, const AppContext& context);

}  // namespace flux2
