#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "train/data/captions.h"
#include "train/data/dataset_config.h"

namespace flux2 {

// An image with everything that belongs to it. Nothing has been opened but the caption.
struct DatasetItem {
  std::filesystem::path image;
  std::string stem;                   // the file's name without extension; cache files are named after it
  std::vector<std::string> captions;  // as the text encoder gets them; several: one is drawn per visit
  std::string written_caption = {};   // as it is in its file, without what the configuration adds
  std::vector<std::filesystem::path> references;
  std::filesystem::path mask;  // empty: none
  // For the training of image-prompt adapters. One of these images is the image prompt of a visit.
  std::vector<std::filesystem::path> image_prompts;
  // Or another image of the dataset with the same group. Without both, the image itself.
  std::optional<std::string> group;
};

// Something that a user should know about a dataset.
struct Finding {
  enum Kind { Stops, Warns } kind = Warns;  // Stops: training on it is not possible
  std::string text;
};

struct Dataset {
  DatasetConfig config;
  std::vector<DatasetItem> items;
  std::vector<Finding> findings;

  bool has_references() const;
};

struct ListOptions {
  int64_t caption_variants = kCaptionVariants;
};

// Lists a dataset. Faults become findings; items that cannot be used are left out.
Dataset list_dataset(const DatasetConfig& config, const ListOptions& options = {});

// Lists all datasets. Throws if one of them has a finding that stops training; warnings go to the log.
std::vector<Dataset> list_datasets(const std::vector<DatasetConfig>& configs, const ListOptions& options = {},
                                   const Log& log = {});

// Throws if there is a finding that stops training. Warnings go to the log.
void report_findings(const std::vector<Finding>& findings, const Log& log);

// "datasets[0]", for messages.
std::string dataset_name(size_t index);

}  // namespace flux2
