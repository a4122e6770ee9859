#include "train/data/training_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/counted_random.h"
#include "base/error.h"
#include "base/path_exists.h"
#include "base/sha256.h"
#include "train/data/cache_state.h"
#include "train/data/dataset.h"
#include "train/data/latent_cache.h"
#include "train/data/match_files.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

// What the numbers of CountedRandom are for.
constexpr uint32_t kCaptionDropout = 3, kReferenceDropout = 4, kItemOrder = 6, kBatchOrder = 7, kFlip = 12, kCaptionVariant = 14,
                   kImagePromptChoice = 62;

Hint make_caches_hint() { return Hint("make the caches with {0}", {run_command("dataset cache CONFIG")}); }

std::vector<std::pair<int64_t, int64_t>> widths_and_heights(const std::vector<LatentSize>& sizes) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  pairs.reserve(sizes.size());
  for (const LatentSize& size : sizes) pairs.emplace_back(size.columns, size.rows);
  return pairs;
}

int64_t batches_in(size_t samples, int64_t batch_size) { return (static_cast<int64_t>(samples) + batch_size - 1) / batch_size; }

// [rows, columns], each row from right to left.
void mirror_rows(std::vector<float>& values, int64_t columns) {
  for (auto row = values.begin(); row != values.end(); row += columns) std::reverse(row, row + columns);
}

}  // namespace

TrainingSet::TrainingSet(std::vector<DatasetConfig> datasets, CacheModel model, const Log& log)
    : TrainingSet(std::move(datasets), std::move(model), std::shared_ptr<const CaptionTable>(), log) {}

TrainingSet::TrainingSet(std::vector<DatasetConfig> datasets, CacheModel model, std::shared_ptr<const CaptionTable> captions,
                         const Log& log)
    : datasets_(std::move(datasets)), model_(std::move(model)), captions_(std::move(captions)) {
  for (size_t d = 0; d < datasets_.size(); ++d) in_context(dataset_name(d), [&] { list_items(d, log); });
  make_buckets();
}

TrainingSet::TrainingSet(std::vector<DatasetConfig> datasets, CacheModel model, std::vector<CachedItem> items, LoadBatch load)
    : datasets_(std::move(datasets)), model_(std::move(model)), items_(std::move(items)), load_(std::move(load)) {
  make_buckets();
}

void TrainingSet::list_items(size_t dataset, const Log& log) {
  const DatasetConfig& config = datasets_[dataset];
  const fs::path& folder = config.cache_directory;
  std::vector<std::string> without_text, stale;
  const size_t before = items_.size();
  for (const std::string& name : latent_files(folder, model_)) {
    const auto parsed = parse_latent_file_name(name, model_);
    if (!parsed) continue;
    const fs::path text = folder / text_file_name(parsed->stem, model_);
    const CaptionTable::Entry* entry = captions_ ? captions_->find(dataset, parsed->stem) : nullptr;
    if (captions_ ? entry == nullptr : !is_file(text)) {
      without_text.push_back(name);
      continue;
    }
    const LatentSummary latents = read_latent_summary(folder / name, model_);
    if (const std::string reason = stale_reason(config, latents); !reason.empty()) {
      stale.push_back(fmt::format("{} {}", name, reason));
      continue;
    }
    if (entry) {
      const auto variants = static_cast<int64_t>(entry->variants.size());
      items_.push_back({dataset,
                        parsed->stem,
                        folder / name,
                        {},
                        latents.original.width,
                        latents.original.height,
                        latents.target,
                        latents.references,
                        latents.has_flip,
                        latents.has_mask,
                        variants > 1 ? variants : 0,
                        entry->hash});
      continue;
    }
    const CaptionSummary caption = read_caption_summary(text, model_);
    const auto hash = caption.metadata.find("flux2.captions");
    items_.push_back({dataset, parsed->stem, folder / name, text, latents.original.width, latents.original.height, latents.target,
                      latents.references, latents.has_flip, latents.has_mask, caption.variants,
                      hash != caption.metadata.end() ? hash->second : captions_hash({caption.caption})});
  }
  if (!stale.empty())
    throw Error(
        ErrorCode::Incompatible,
        fmt::format("cache files in {} do not fit the configuration ({}): {}", folder.string(), stale.size(), some_of(stale)),
        make_caches_hint());
  if (!without_text.empty())
    log.warn("{}: no {} these latents in {} ({}); left out: {}", dataset_name(dataset),
             captions_ ? "caption belongs to" : "text states beside", folder.string(), without_text.size(),
             some_of(without_text));
  if (items_.size() == before)
    throw Error(ErrorCode::NotFound, fmt::format("{} contains no caches of {}", folder.string(), model_.full_name),
                make_caches_hint());
  const fs::path empty = folder / empty_text_file_name(model_);
  if (!captions_ && config.caption_dropout_rate > 0 && !config.validation) {
    if (!is_file(empty))
      throw Error(ErrorCode::NotFound,
                  fmt::format("caption_dropout_rate needs the states of the empty caption, {}", empty.string()),
                  make_caches_hint());
    read_caption_summary(empty, model_);
  }
}

void TrainingSet::make_buckets() {
  // By dataset, width, height and references; items are already in the order of their file names.
  using Key = std::tuple<size_t, int64_t, int64_t, std::vector<std::pair<int64_t, int64_t>>>;
  std::map<Key, Bucket> sorted;
  for (size_t i = 0; i < items_.size(); ++i) {
    const CachedItem& item = items_[i];
    Bucket& bucket = sorted[{item.dataset, item.size.columns, item.size.rows, widths_and_heights(item.references)}];
    bucket.dataset = item.dataset;
    bucket.size = item.size;
    bucket.references = item.references;
    bucket.items.push_back(i);
  }
  for (auto& [key, bucket] : sorted)
    (datasets_[bucket.dataset].validation ? validation_buckets_ : buckets_).push_back(std::move(bucket));
  if (buckets_.empty())
    throw Error(ErrorCode::InvalidArgument, "every dataset has validation = true, so there is nothing to train on");
}

int64_t TrainingSet::training_items() const {
  int64_t count = 0;
  for (const Bucket& bucket : buckets_) count += static_cast<int64_t>(bucket.items.size());
  return count;
}

int64_t TrainingSet::samples_per_epoch() const {
  int64_t count = 0;
  for (const Bucket& bucket : buckets_)
    count += static_cast<int64_t>(bucket.items.size()) * datasets_[bucket.dataset].num_repeats;
  return count;
}

int64_t TrainingSet::batches_per_epoch() const {
  int64_t count = 0;
  for (const Bucket& bucket : buckets_) {
    const DatasetConfig& config = datasets_[bucket.dataset];
    count += batches_in(bucket.items.size() * static_cast<size_t>(config.num_repeats), config.batch_size);
  }
  return count;
}

bool TrainingSet::has_references() const {
  return std::any_of(items_.begin(), items_.end(), [](const CachedItem& item) { return !item.references.empty(); });
}

bool TrainingSet::has_validation() const { return !validation_buckets_.empty(); }

int64_t TrainingSet::largest_tokens() const {
  int64_t largest = 0;
  for (const CachedItem& item : items_) {
    int64_t tokens = item.size.tokens();
    for (const LatentSize& reference : item.references) tokens += reference.tokens();
    largest = std::max(largest, tokens);
  }
  return largest;
}

std::vector<BatchPlan> TrainingSet::batches_of(const Bucket& bucket, const std::vector<size_t>& order) const {
  const auto batch_size = static_cast<size_t>(datasets_[bucket.dataset].batch_size);
  std::vector<BatchPlan> plans;
  for (size_t begin = 0; begin < order.size(); begin += batch_size) {
    BatchPlan plan{bucket.dataset, bucket.size, bucket.references, {}, false};
    for (size_t i = begin; i < std::min(begin + batch_size, order.size()); ++i) {
      Sample sample;
      sample.item = order[i];
      plan.samples.push_back(sample);
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<BatchPlan> TrainingSet::epoch(uint64_t seed, int64_t epoch) const {
  const auto number = static_cast<uint64_t>(epoch);
  std::vector<BatchPlan> plans;
  uint64_t element = 0;  // of the numbers that shuffle a dataset
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    if (b > 0 && buckets_[b - 1].dataset != bucket.dataset) element = 0;
    std::vector<size_t> order;
    for (const size_t item : bucket.items)
      order.insert(order.end(), static_cast<size_t>(datasets_[bucket.dataset].num_repeats), item);
    CountedRandom(seed, kItemOrder, (number << 32) + bucket.dataset).shuffle(std::span(order), element);
    element += order.size();
    for (BatchPlan& plan : batches_of(bucket, order)) plans.push_back(std::move(plan));
  }
  CountedRandom(seed, kBatchOrder, number).shuffle(std::span(plans));

  uint64_t index = number * static_cast<uint64_t>(samples_per_epoch());
  for (BatchPlan& plan : plans) {
    const DatasetConfig& config = datasets_[plan.dataset];
    for (Sample& sample : plan.samples) {
      sample.index = index++;
      const auto draw = [&](uint32_t purpose) { return CountedRandom(seed, purpose, sample.index).uniform(0); };
      sample.caption_dropped = draw(kCaptionDropout) < config.caption_dropout_rate;
      sample.references_dropped = !plan.references.empty() && draw(kReferenceDropout) < config.reference_dropout_rate;
      sample.flipped = config.flip_aug && draw(kFlip) < 0.5;
      // Variants that the configuration no longer asks for are not drawn.
      const int64_t variants = config.shuffle_tags ? items_[sample.item].caption_variants : 0;
      sample.caption_variant = static_cast<int64_t>(draw(kCaptionVariant) * static_cast<double>(variants));
      if (!features_.choices.empty())
        sample.image_prompt =
            static_cast<size_t>(draw(kImagePromptChoice) * static_cast<double>(features_.choices[sample.item].size()));
    }
  }
  return plans;
}

std::vector<BatchPlan> TrainingSet::validation() const {
  std::vector<BatchPlan> plans;
  uint64_t index = 0;
  for (const Bucket& bucket : validation_buckets_)
    for (BatchPlan& plan : batches_of(bucket, bucket.items)) {
      for (Sample& sample : plan.samples) sample.index = index++;
      plans.push_back(std::move(plan));
    }
  return plans;
}

LoadedBatch TrainingSet::load(const BatchPlan& plan) const {
  if (load_) return load_(plan);
  const DatasetConfig& config = datasets_.at(plan.dataset);
  LoadedBatch batch;
  batch.plan = plan;
  batch.text_length = model_.text_length;
  batch.text_width = model_.text_width;
  batch.regularisation = config.is_reg;
  for (const LatentSize& size : plan.references) batch.references.push_back({size, {}});
  for (size_t place = 0; place < plan.samples.size(); ++place) load_sample(plan, place, batch);
  batch.loss_multiplier.assign(plan.samples.size(), static_cast<float>(config.loss_multiplier));
  if (!features_.choices.empty())
    for (const Sample& sample : plan.samples) {
      const std::vector<float>& vector = features_.vectors[features_.choices[sample.item].at(sample.image_prompt)];
      batch.features.insert(batch.features.end(), vector.begin(), vector.end());
    }
  return batch;
}

void TrainingSet::set_features(ItemFeatures features) {
  require(!load_ && features.choices.size() == items_.size(), "vectors of {} images for {}", features.choices.size(),
          items_.size());
  for (const ItemFeatures::Choice& choice : features.choices)
    require(choice.size() > 0 && choice.first + choice.count <= features.vectors.size(), "an image has no vector");
  features_ = std::move(features);
}

void TrainingSet::load_sample(const BatchPlan& plan, size_t place, LoadedBatch& batch) const {
  const Sample& sample = plan.samples[place];
  const CachedItem& item = items_.at(sample.item);
  const DatasetConfig& config = datasets_[plan.dataset];
  LatentCache cache = read_latent_cache(item.latent_file, model_, sample.flipped);
  const auto append = [&](std::vector<float>& to, const Latents& latents, LatentSize expected) {
    if (latents.size != expected)
      fail(ErrorCode::BadFile, "{} was replaced while it was used: its latents have another size", item.latent_file.string());
    to.insert(to.end(), latents.values.begin(), latents.values.end());
  };
  append(batch.latents, sample.flipped ? cache.flipped : cache.target, plan.size);
  const std::vector<Latents>& references = sample.flipped ? cache.flipped_references : cache.references;
  for (size_t r = 0; r < plan.references.size(); ++r)
    append(batch.references[r].values, r < references.size() ? references[r] : Latents{}, plan.references[r]);

  if (config.has_masks()) {
    if (static_cast<int64_t>(cache.mask.size()) != plan.size.tokens())
      fail(ErrorCode::BadFile, "{} was replaced while it was used: its mask is gone", item.latent_file.string());
    if (sample.flipped) mirror_rows(cache.mask, plan.size.columns);
    for (const float weight : cache.mask) batch.mask.push_back(std::max(weight, static_cast<float>(config.mask_min)));
  }

  if (captions_) {
    const CaptionTable::Entry& entry = *captions_->find(item.dataset, item.stem);
    const auto variant = static_cast<size_t>(sample.caption_variant);
    const CaptionTokens& tokens = sample.caption_dropped ? captions_->empty() : entry.variants.at(variant);
    batch.token_ids.insert(batch.token_ids.end(), tokens.ids.begin(), tokens.ids.end());
    batch.token_mask.insert(batch.token_mask.end(), tokens.mask.begin(), tokens.mask.end());
    return;
  }
  const auto states = static_cast<size_t>(model_.text_length * model_.text_width);
  batch.text.resize((place + 1) * states);
  const fs::path text = sample.caption_dropped ? config.cache_directory / empty_text_file_name(model_) : item.text_file;
  read_caption_states(text, model_, sample.caption_dropped ? 0 : sample.caption_variant, batch.text.data() + place * states);
}

std::string TrainingSet::dataset_hash() const {
  std::vector<std::string> lines;
  for (const CachedItem& item : items_) {
    std::string references;
    for (const LatentSize& r : item.references)
      references += fmt::format("{}{}x{}", references.empty() ? "" : ";", r.columns, r.rows);
    lines.push_back(fmt::format("{},{},{}x{},{}x{},{},{}\n", item.dataset, item.stem, item.width, item.height, item.size.columns,
                                item.size.rows, references, item.caption_hash));
  }
  std::sort(lines.begin(), lines.end());
  const std::string all = fmt::format("{}", fmt::join(lines, ""));
  return sha256(std::as_bytes(std::span(all)));
}

std::vector<BatchPlan> deal(const std::vector<BatchPlan>& epoch, int64_t rank, int64_t ranks) {
  check(ranks >= 1 && rank >= 0 && rank < ranks, "rank {} is not one of {} ranks", rank, ranks);
  std::vector<BatchPlan> dealt;
  const auto count = static_cast<int64_t>(epoch.size());
  if (count == 0) return dealt;
  for (int64_t i = rank; i < batches_in(epoch.size(), ranks) * ranks; i += ranks) {
    dealt.push_back(epoch[static_cast<size_t>(i % count)]);
    dealt.back().repeated = i >= count;
  }
  return dealt;
}

namespace {

LoadedBatch chosen_samples(const LoadedBatch& batch, const std::vector<size_t>& places, bool with_references) {
  LoadedBatch part;
  part.plan = batch.plan;
  part.plan.samples.clear();
  part.text_length = batch.text_length;
  part.text_width = batch.text_width;
  part.regularisation = batch.regularisation;
  if (with_references)
    for (const LoadedBatch::Reference& r : batch.references) part.references.push_back({r.size, {}});
  else part.plan.references.clear();
  const auto samples = batch.plan.samples.size();
  for (const size_t place : places) {
    const auto copy = [&](auto& to, const auto& from) {
      const size_t one = from.size() / samples;
      const auto begin = from.begin() + static_cast<ptrdiff_t>(place * one);
      to.insert(to.end(), begin, begin + static_cast<ptrdiff_t>(one));
    };
    part.plan.samples.push_back(batch.plan.samples[place]);
    copy(part.latents, batch.latents);
    copy(part.text, batch.text);
    copy(part.token_ids, batch.token_ids);
    copy(part.token_mask, batch.token_mask);
    copy(part.features, batch.features);
    copy(part.mask, batch.mask);
    copy(part.loss_multiplier, batch.loss_multiplier);
    for (size_t r = 0; r < part.references.size(); ++r) copy(part.references[r].values, batch.references[r].values);
  }
  return part;
}

}  // namespace

std::vector<LoadedBatch> split_by_references(LoadedBatch batch) {
  std::vector<size_t> with, without;
  for (size_t i = 0; i < batch.plan.samples.size(); ++i) (batch.plan.samples[i].references_dropped ? without : with).push_back(i);
  std::vector<LoadedBatch> parts;
  if (without.empty()) {
    parts.push_back(std::move(batch));
    return parts;
  }
  if (!with.empty()) parts.push_back(chosen_samples(batch, with, true));
  parts.push_back(chosen_samples(batch, without, false));
  return parts;
}

}  // namespace flux2
