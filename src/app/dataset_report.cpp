#include "app/dataset_report.h"

#include <algorithm>

namespace flux2 {

namespace {

Json bucket_json(const BucketCount& bucket) {
  Json references = Json::array();
  for (const PixelSize& r : bucket.references) references.push_back({r.width, r.height});
  return {{"width", bucket.size.width},
          {"height", bucket.size.height},
          {"references", references},
          {"images", bucket.images},
          {"batches", bucket.batches}};
}

Json survey_json(const SurveyedDataset& dataset) {
  Json settings = Json::object(), buckets = Json::array(), findings = Json::array();
  for (const auto& [name, value] : described(dataset.config)) settings[name] = value;
  for (const BucketCount& bucket : dataset.survey.buckets) buckets.push_back(bucket_json(bucket));
  for (const Finding& f : dataset.survey.findings)
    findings.push_back({{"kind", f.kind == Finding::Stops ? "error" : "warning"}, {"text", f.text}});
  return {{"images", dataset.survey.images()},
          {"batches", dataset.survey.batches()},
          {"validation", dataset.config.validation},
          {"settings", settings},
          {"buckets", buckets},
          {"findings", findings}};
}

}  // namespace

std::vector<SurveyedDataset> survey_datasets(const Json& content, const std::filesystem::path& file, int threads,
                                             const ImageLimits& limits, const Log& log) {
  std::vector<SurveyedDataset> all;
  for (const DatasetConfig& config : in_context(file.string(), [&] { return read_dataset_config(content, file, log); }))
    all.push_back({config, survey_dataset(list_dataset(config), threads, limits)});
  return all;
}

int64_t training_batches(const std::vector<SurveyedDataset>& datasets) {
  int64_t batches = 0;
  for (const SurveyedDataset& d : datasets)
    if (!d.config.validation) batches += d.survey.batches();
  return batches;
}

bool can_train(const std::vector<SurveyedDataset>& datasets) {
  const bool stops = std::any_of(datasets.begin(), datasets.end(), [](const SurveyedDataset& d) { return d.survey.stops(); });
  const bool trains =
      std::any_of(datasets.begin(), datasets.end(), [](const SurveyedDataset& d) { return !d.config.validation; });
  return !stops && trains;
}

Json dataset_report(const std::vector<SurveyedDataset>& datasets) {
  Json list = Json::array();
  for (const SurveyedDataset& d : datasets) list.push_back(survey_json(d));
  return {{"ok", can_train(datasets)}, {"batches_per_epoch", training_batches(datasets)}, {"datasets", std::move(list)}};
}

}  // namespace flux2
