#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "train/data/cache_names.h"
#include "train/data/caption_tokens.h"
#include "train/data/dataset_config.h"

namespace flux2 {

// One image of a dataset as its two cache files describe it.
struct CachedItem {
  size_t dataset = 0;  // which dataset of the configuration
  std::string stem;
  std::filesystem::path latent_file, text_file;
  int64_t width = 0, height = 0;  // of the original image, in pixels
  LatentSize size;
  std::vector<LatentSize> references;
  bool has_flip = false, has_mask = false;
  int64_t caption_variants = 0;  // 0: one caption
  std::string caption_hash;      // SHA-256 of the caption text
};

// One visit of an item. All that is drawn at random for it is drawn in epoch(), from the sample index alone.
struct Sample {
  size_t item = 0;                  // in TrainingSet::items()
  uint64_t index = 0;               // the global sample index: the same for any number of ranks, and after a resume
  bool flipped = false;             // the mirrored latents, references and mask are used
  bool caption_dropped = false;     // the text states are those of the empty caption
  bool references_dropped = false;  // the loop must leave the references of this sample out; they are loaded all the same
  int64_t caption_variant = 0;
  size_t image_prompt = 0;  // which of the vectors that its item may have
};

// Vectors of an image encoder for the items of a set: those of their image prompts.
struct ItemFeatures {
  // Vectors `first` … `first + count − 1` without number `own` of them, which shows the item itself.
  struct Choice {
    size_t first = 0, count = 1;
    std::optional<size_t> own = {};

    size_t size() const { return count - (own ? 1 : 0); }
    size_t at(size_t i) const { return first + i + (own && i >= *own ? 1 : 0); }
  };
  std::vector<std::vector<float>> vectors;  // all of the same length
  std::vector<Choice> choices;              // by item; one vector is drawn for each visit
};

// Samples that are computed together: same dataset, same size, same sizes of references.
struct BatchPlan {
  size_t dataset = 0;
  LatentSize size;
  std::vector<LatentSize> references;
  std::vector<Sample> samples;  // 1 … batch_size of the dataset
  bool repeated = false;        // only in deal(): another rank computes this batch too; it fills up the last round
};

// A batch in host memory. Row-major, one sample after the other.
struct LoadedBatch {
  struct Reference {
    LatentSize size;
    std::vector<float> values;  // [B, 128, rows, columns]
  };

  BatchPlan plan;
  std::vector<float> latents;  // [B, 128, rows, columns]: x0
  std::vector<float> pixels;   // [B, 16 · rows, 16 · columns, 3] of −1 … 1, of a set of images; then the others are empty
  std::vector<Reference> references;  // reference k of every sample; empty without references
  int64_t text_length = 0, text_width = 0;
  std::vector<float> text;                     // [B, T, C]
  std::vector<int32_t> token_ids, token_mask;  // [B, T], instead of `text` if the text encoder is trained
  std::vector<float> features;                 // [B, F]: vectors of an image encoder for the image prompts; empty without
  std::vector<float> mask;                     // [B, rows, columns]: weights of the loss, mask_min … 1; empty if all are 1
  std::vector<float> loss_multiplier;          // [B]
  bool regularisation = false;                 // the dataset has `is_reg`

  int64_t size() const { return static_cast<int64_t>(plan.samples.size()); }
};

// Parts of a batch in which all samples have references or none: samples with `references_dropped` lose theirs and come last.
// One part if nothing was dropped.
std::vector<LoadedBatch> split_by_references(LoadedBatch batch);

// Every P-th batch, from the rank-th on. All ranks get the same number: the last round is filled up with batches from the start,
// marked `repeated`.
std::vector<BatchPlan> deal(const std::vector<BatchPlan>& epoch, int64_t rank, int64_t ranks);

// The items that the caches of a configuration hold, and the order in which training visits them. Opens cache files only, never
// images. Immutable, so several threads may use it.
class TrainingSet {
 public:
  // Reads the headers of all cache files. Throws when there is nothing to train on, or when a file was made for another bucket or
  // model or lacks what the configuration asks for. An item without text states is left out with a warning.
  TrainingSet(std::vector<DatasetConfig> datasets, CacheModel model, const Log& log = {});
  // The same with captions as tokens (LoadedBatch::token_ids); text caches are not read.
  TrainingSet(std::vector<DatasetConfig> datasets, CacheModel model, std::shared_ptr<const CaptionTable> captions,
              const Log& log = {});
  // Items that are not in caches; `load` makes their batches, on any thread.
  using LoadBatch = std::function<LoadedBatch(const BatchPlan& plan)>;
  TrainingSet(std::vector<DatasetConfig> datasets, CacheModel model, std::vector<CachedItem> items, LoadBatch load);

  const std::vector<DatasetConfig>& datasets() const { return datasets_; }
  const CacheModel& model() const { return model_; }
  const std::vector<CachedItem>& items() const { return items_; }  // also those of validation datasets

  int64_t training_items() const;     // without repeats
  int64_t samples_per_epoch() const;  // with repeats
  int64_t batches_per_epoch() const;
  bool has_references() const;
  bool has_validation() const;
  int64_t largest_tokens() const;  // target and references of one sample together, over training and validation

  // The batches of one epoch (counted from 0) in order, a pure function of its arguments.
  std::vector<BatchPlan> epoch(uint64_t seed, int64_t epoch) const;

  // The batches of datasets with `validation`, always in the same order, nothing drawn. Sample indices count from 0.
  std::vector<BatchPlan> validation() const;

  LoadedBatch load(const BatchPlan& plan) const;

  // Vectors of an image encoder, which batches then have. Mirrored targets have those of the originals.
  void set_features(ItemFeatures features);

  // SHA-256 over one line for each item: dataset, stem, size, bucket, references, caption.
  std::string dataset_hash() const;

 private:
  struct Bucket {
    size_t dataset = 0;
    LatentSize size;
    std::vector<LatentSize> references;
    std::vector<size_t> items;  // in the order of cache file names, without repeats
  };

  void list_items(size_t dataset, const Log& log);
  void make_buckets();
  std::vector<BatchPlan> batches_of(const Bucket& bucket, const std::vector<size_t>& order) const;
  void load_sample(const BatchPlan& plan, size_t place, LoadedBatch& batch) const;

  std::vector<DatasetConfig> datasets_;
  CacheModel model_;
  std::vector<CachedItem> items_;
  std::vector<Bucket> buckets_;  // as sorted before shuffling; those of validation datasets are apart
  std::vector<Bucket> validation_buckets_;
  LoadBatch load_;                                // empty: from caches
  ItemFeatures features_;                         // may be empty
  std::shared_ptr<const CaptionTable> captions_;  // null: text states are in caches
};

}  // namespace flux2
