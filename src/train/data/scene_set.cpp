#include "train/data/scene_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <future>
#include <map>
#include <mutex>

#include "base/counted_random.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "tensor/dtype.h"
#include "train/data/dataset.h"
#include "train/data/ordered_workers.h"
#include "train/data/scene_source.h"

namespace flux2 {

namespace {

// What the numbers of CountedRandom are for.
constexpr uint32_t kSceneSquare = 51, kSceneWording = 52;

void add_pixels(const Image& image, float* to) {
  for (const uint8_t value : image.pixels) *to++ = static_cast<float>(value) / 127.5f - 1.0f;
}

// The scenes of one drawing with their latents and tokens.
struct Drawing {
  struct Part {                                             // of a dataset
    std::vector<std::array<std::vector<bf16>, 3>> latents;  // of each item: target and references, [128, rows, columns]
    std::vector<std::vector<CaptionTokens>> captions;       // of each item
    std::vector<std::vector<float>> features;               // of the target of each item; empty without an image encoder
  };
  std::vector<Part> parts;
};

class ScenePool {
 public:
  ScenePool(SceneSource source, CacheModel model, SceneLatentOptions options)
      : source_(std::move(source)),
        model_(std::move(model)),
        options_(std::move(options)),
        threads_(options_.threads),
        empty_(options_.tokenise("")) {}

  ~ScenePool() { stop_ = true; }  // the futures wait for their threads

  LoadedBatch load(const BatchPlan& plan) {
    const DatasetConfig& config = source_.configs()[plan.dataset];
    const SceneConfig& scenes = *config.scenes;
    LoadedBatch batch;
    batch.plan = plan;
    batch.text_length = model_.text_length;
    batch.text_width = model_.text_width;
    batch.regularisation = config.is_reg;
    batch.loss_multiplier.assign(plan.samples.size(), static_cast<float>(config.loss_multiplier));
    for (const LatentSize& size : plan.references) batch.references.push_back({size, {}});
    std::shared_ptr<const Drawing> drawing;
    int64_t number = -1;
    for (const Sample& sample : plan.samples) {
      const int64_t wanted = config.validation ? kValidation : drawing_of(sample.index, scenes.redraw);
      if (wanted != number) drawing = get(number = wanted);
      const auto item = sample.item - source_.first_item(plan.dataset);
      const Drawing::Part& part = drawing->parts[plan.dataset];
      const auto add = [](std::vector<float>& to, const std::vector<bf16>& from) {
        const size_t at = to.size();
        to.resize(at + from.size());
        std::transform(from.begin(), from.end(), to.begin() + static_cast<ptrdiff_t>(at), [](bf16 v) { return to_float(v); });
      };
      add(batch.latents, part.latents[item][0]);
      if (options_.feature) batch.features.insert(batch.features.end(), part.features[item].begin(), part.features[item].end());
      for (size_t r = 0; r < plan.references.size(); ++r) add(batch.references[r].values, part.latents[item][r + 1]);
      const double wording = CountedRandom(scenes.seed, kSceneWording, sample.index).uniform(0);
      const auto& captions = part.captions[item];
      const CaptionTokens& tokens =
          sample.caption_dropped ? empty_ : captions[static_cast<size_t>(wording * static_cast<double>(captions.size()))];
      batch.token_ids.insert(batch.token_ids.end(), tokens.ids.begin(), tokens.ids.end());
      batch.token_mask.insert(batch.token_mask.end(), tokens.mask.begin(), tokens.mask.end());
    }
    return batch;
  }

 private:
  using Images = std::vector<std::array<Image, 3>>;  // of several items: target and references

  static constexpr int64_t kValidation = -2;  // of datasets with `validation`: one drawing that is never replaced

  int64_t drawing_of(uint64_t sample, int64_t redraw) const {
    const auto epoch = static_cast<int64_t>(sample) / source_.samples_per_epoch();
    return redraw == 0 ? 0 : epoch / redraw;
  }

  // Waits until a drawing is ready; begins with the next one.
  std::shared_ptr<const Drawing> get(int64_t number) {
    std::shared_future<std::shared_ptr<const Drawing>> wanted;
    {
      const std::lock_guard lock(mutex_);
      wanted = begin(number);
      const bool redraws = std::any_of(source_.configs().begin(), source_.configs().end(),
                                       [](const DatasetConfig& c) { return !c.validation && c.scenes->redraw > 0; });
      if (number != kValidation && redraws) begin(number + 1);
      // Batches that are loaded ahead may still need the one before.
      std::erase_if(drawings_, [&](const auto& d) { return d.first != kValidation && d.first + 1 < number; });
    }
    return wanted.get();
  }

  std::shared_future<std::shared_ptr<const Drawing>> begin(int64_t number) {
    if (const auto found = drawings_.find(number); found != drawings_.end()) return found->second;
    auto made = std::async(std::launch::async, [this, number] { return make(number); }).share();
    drawings_.emplace(number, made);
    return made;
  }

  std::shared_ptr<const Drawing> make(int64_t number) {
    const std::lock_guard one_at_a_time(making_);
    auto drawing = std::make_shared<Drawing>();
    int64_t done = 0, total = 0;
    for (const DatasetConfig& c : source_.configs()) total += c.validation == (number == kValidation) ? c.scenes->count : 0;
    for (size_t d = 0; d < source_.configs().size(); ++d) {
      drawing->parts.emplace_back();
      if (source_.configs()[d].validation != (number == kValidation)) continue;
      make_part(d, std::max<int64_t>(0, number), drawing->parts.back(), [&](int64_t items) {
        done += items;
        if (options_.progress && number <= 0) options_.progress(done, total);
      });
    }
    return drawing;
  }

  void make_part(size_t d, int64_t number, Drawing::Part& part, const std::function<void(int64_t)>& made) {
    const int64_t count = source_.scenes(d).count;
    part.latents.resize(static_cast<size_t>(count));
    part.captions.resize(static_cast<size_t>(count));
    const int64_t together = std::max<int64_t>(1, options_.pixels_together / source_.configs()[d].resolution.area());
    // The next images are drawn while these are encoded.
    OrderedWorkers<Images> drawn(static_cast<size_t>((count + together - 1) / together), 1, [&](size_t call) {
      const int64_t begin = static_cast<int64_t>(call) * together;
      return draw(d, begin, std::min(begin + together, count), number, part);
    });
    for (int64_t begin = 0; begin < count; begin += together) {
      if (stop_) throw Error(ErrorCode::Cancelled, "stopped");
      Images images = *drawn.next();
      if (options_.feature)
        for (const auto& mine : images) part.features.push_back(options_.feature(mine[0]));
      // Targets first, then the references in the order of their items: the same calls every time.
      for (size_t k = 0; k < 3; ++k) encode(images, k, begin, part);
      made(static_cast<int64_t>(images.size()));
    }
  }

  // Scenes `begin` … `end` − 1 of a dataset. Their captions are tokenised, too.
  Images draw(size_t d, int64_t begin, int64_t end, int64_t number, Drawing::Part& part) {
    Images images(static_cast<size_t>(end - begin));
    threads_.parallel_for(end - begin, [&](int64_t i) {
      const SceneSample sample = source_.sample(d, begin + i, number);
      auto& mine = images[static_cast<size_t>(i)];
      mine[0] = source_.draw(d, sample.target);
      for (size_t r = 0; r < sample.references.size(); ++r) mine[r + 1] = source_.draw(d, sample.references[r]);
      auto& captions = part.captions[static_cast<size_t>(begin + i)];
      for (const std::string& text : sample.captions) captions.push_back(options_.tokenise(text));
    });
    return images;
  }

  // The k-th image of each item that has one.
  void encode(Images& images, size_t k, int64_t first, Drawing::Part& part) const {
    std::vector<Image> chosen;
    std::vector<size_t> items;
    for (size_t i = 0; i < images.size(); ++i) {
      if (images[i][k].pixels.empty()) continue;
      chosen.push_back(std::move(images[i][k]));
      items.push_back(static_cast<size_t>(first) + i);
    }
    if (chosen.empty()) return;
    const std::vector<float> latents = options_.encode(chosen);
    const size_t one = latents.size() / chosen.size();
    for (size_t i = 0; i < items.size(); ++i) {
      std::vector<bf16>& to = part.latents[items[i]][k];
      to.resize(one);
      std::transform(latents.begin() + static_cast<ptrdiff_t>(i * one), latents.begin() + static_cast<ptrdiff_t>((i + 1) * one),
                     to.begin(), to_bf16);
    }
  }

  SceneSource source_;
  CacheModel model_;
  SceneLatentOptions options_;
  ThreadPool threads_;
  CaptionTokens empty_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_, making_;
  std::map<int64_t, std::shared_future<std::shared_ptr<const Drawing>>> drawings_;  // last: their threads use the others
};

}  // namespace

bool are_scenes(const std::vector<DatasetConfig>& datasets) {
  return std::any_of(datasets.begin(), datasets.end(), [](const DatasetConfig& c) { return c.scenes.has_value(); });
}

TrainingSet scene_image_set(std::vector<DatasetConfig> configs, const CacheModel& model, const SceneImageOptions& options) {
  const auto source = std::make_shared<const SceneSource>(configs);
  const auto threads = std::make_shared<ThreadPool>(options.threads);
  std::vector<CachedItem> items = source->items(false);
  for (CachedItem& item : items) {
    if (options.crop == 0) continue;
    if (options.crop > std::min(item.width, item.height))
      fail(ErrorCode::InvalidArgument, "{}: images of {}×{} pixels are smaller than the square of {}", dataset_name(item.dataset),
           item.width, item.height, options.crop);
    item.size = latent_size({options.crop, options.crop});
  }
  auto load = [source, threads, options](const BatchPlan& plan) {
    const DatasetConfig& config = source->configs()[plan.dataset];
    LoadedBatch batch;
    batch.plan = plan;
    batch.regularisation = config.is_reg;
    batch.loss_multiplier.assign(plan.samples.size(), static_cast<float>(config.loss_multiplier));
    const auto one = static_cast<size_t>(plan.size.tokens() * kBucketStep * kBucketStep * 3);
    batch.pixels.resize(plan.samples.size() * one);
    threads->parallel_for(static_cast<int64_t>(plan.samples.size()), [&](int64_t i) {
      const Sample& sample = plan.samples[static_cast<size_t>(i)];
      // Each visit has a drawing of its own, so no image is seen twice.
      const auto item = static_cast<int64_t>(sample.item - source->first_item(plan.dataset));
      Image image = source->draw(plan.dataset, source->sample(plan.dataset, item, static_cast<int64_t>(sample.index)).target);
      if (options.crop > 0) {
        const auto side = static_cast<int>(options.crop);
        const CountedRandom random(options.seed, kSceneSquare, sample.index);
        const auto place = [&](uint64_t element, int room) {
          return config.validation ? room / 2 : static_cast<int>(random.uniform(element) * static_cast<double>(room + 1));
        };
        image = crop(image, place(0, image.width - side), place(1, image.height - side), side, side);
      }
      add_pixels(image, batch.pixels.data() + static_cast<size_t>(i) * one);
    });
    return batch;
  };
  return {std::move(configs), model, std::move(items), std::move(load)};
}

TrainingSet scene_latent_set(std::vector<DatasetConfig> configs, const CacheModel& model, SceneLatentOptions options) {
  SceneSource source(configs);
  std::vector<CachedItem> items = source.items(true);
  const auto pool = std::make_shared<ScenePool>(std::move(source), model, std::move(options));
  return {std::move(configs), model, std::move(items), [pool](const BatchPlan& plan) { return pool->load(plan); }};
}

std::vector<std::string> scene_captions(const std::vector<DatasetConfig>& configs, int64_t count) {
  const SceneSource source(configs);
  std::vector<std::string> captions;
  for (int64_t number = 0; static_cast<int64_t>(captions.size()) < count; ++number)
    for (size_t d = 0; d < configs.size() && static_cast<int64_t>(captions.size()) < count; ++d) {
      // Spread over the dataset, because the kinds of scenes follow each other in it.
      const double place = static_cast<double>(number) * 0.6180339887498949;
      const auto item = static_cast<int64_t>((place - std::floor(place)) * static_cast<double>(source.scenes(d).count));
      const SceneSample sample = source.sample(d, item, number);
      captions.push_back(sample.captions.front());
    }
  return captions;
}

}  // namespace flux2
