#pragma once

#include <filesystem>
#include <vector>

#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "train/data/survey.h"

namespace flux2 {

// A dataset of a dataset file with everything that its images show.
struct SurveyedDataset {
  DatasetConfig config;
  DatasetSurvey survey;
};

// Reads every image of a dataset file, on several threads (0: all processors).
std::vector<SurveyedDataset> survey_datasets(const Json& content, const std::filesystem::path& file, int threads,
                                             const ImageLimits& limits, const Log& log);

int64_t training_batches(const std::vector<SurveyedDataset>& datasets);  // of an epoch, without those for validation
bool can_train(const std::vector<SurveyedDataset>& datasets);            // nothing would stop training

// {"ok", "batches_per_epoch", "datasets": [{"images", "batches", "validation", "settings", "buckets", "findings"}]}
Json dataset_report(const std::vector<SurveyedDataset>& datasets);

}  // namespace flux2
