#include "train/data/make_caches.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/path_exists.h"
#include "base/thread_pool.h"
#include "train/data/ordered_workers.h"
#include "train/data/source_images.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

size_t worker_count(const CacheOptions& options) {
  if (options.workers > 0) return static_cast<size_t>(options.workers);
  const unsigned cores = std::thread::hardware_concurrency();
  return cores > 1 ? cores - 1 : 1;
}

CacheCheck check_of(const CacheOptions& options) {
  if (options.skip_existing) return CacheCheck::Fits;
  return options.any_form ? CacheCheck::AnyForm : CacheCheck::Contents;
}

// The latent files of each stem. There are several when an image was replaced by one of another size.
std::map<std::string, std::vector<std::string>> files_by_stem(const fs::path& folder, const CacheModel& model) {
  std::map<std::string, std::vector<std::string>> files;
  for (const std::string& name : latent_files(folder, model))
    if (const auto parsed = parse_latent_file_name(name, model)) files[parsed->stem].push_back(name);
  return files;
}

std::string latent_encoder(const CacheOptions& options) { return options.encoder + " " + torch_name(options.latent_dtype); }

// The items for which `is_due` says so, asked on several threads.
std::vector<CacheTask> due_items(const Dataset& dataset, size_t index, const CacheOptions& options,
                                 const std::function<bool(const DatasetItem&)>& is_due) {
  std::vector<char> due(dataset.items.size(), options.everything ? 1 : 0);
  if (!options.everything) {
    ThreadPool threads(static_cast<int>(worker_count(options)));
    threads.parallel_for(static_cast<int64_t>(due.size()),
                         [&](int64_t i) { due[static_cast<size_t>(i)] = is_due(dataset.items[static_cast<size_t>(i)]) ? 1 : 0; });
  }
  std::vector<CacheTask> tasks;
  for (size_t i = 0; i < due.size(); ++i)
    if (due[i]) tasks.push_back({index, i, false});
  return tasks;
}

LatentCache encoded(const PreparedItem& prepared, bool flip, const EncodeTrainingImage& encode) {
  const auto latents_of = [&](const Image& image) {
    const LatentSize size = latent_size({image.width, image.height});
    Latents latents{size, encode(image.width, image.height, training_planes(image))};
    require(static_cast<int64_t>(latents.values.size()) == kLatentChannels * size.tokens(),
            "the encoder returned {} values for an image of {}×{}", latents.values.size(), image.width, image.height);
    return latents;
  };
  LatentCache cache;
  cache.original = prepared.original;
  cache.target = latents_of(prepared.target);
  for (const Image& reference : prepared.references) cache.references.push_back(latents_of(reference));
  if (flip) {
    cache.flipped = latents_of(mirrored(prepared.target));
    for (const Image& reference : prepared.references) cache.flipped_references.push_back(latents_of(mirrored(reference)));
  }
  cache.mask = prepared.mask;
  return cache;
}

fs::path text_path(const Dataset& dataset, const CacheTask& task, const CacheModel& model) {
  return dataset.config.cache_directory /
         (task.empty_caption ? empty_text_file_name(model) : text_file_name(dataset.items[task.item].stem, model));
}

// The texts of an item that its file should have: with any_form, as many orders of the tags as are in it.
std::vector<std::string> expected_texts(const Dataset& dataset, const DatasetItem& item, const fs::path& file,
                                        const CacheModel& model, const CacheOptions& options) {
  if (!options.any_form || item.captions.size() < 2 || !is_file(file)) return item.captions;
  try {
    const int64_t variants = read_caption_summary(file, model).variants;
    if (variants >= 2) return caption_texts(dataset.config, item.written_caption, variants);
  } catch (const Error&) {  // damaged: it is made again
  }
  return item.captions;
}

}  // namespace

std::vector<CacheTask> latent_tasks(const std::vector<Dataset>& datasets, const CacheModel& model, const CacheOptions& options) {
  std::vector<CacheTask> tasks;
  for (size_t d = 0; d < datasets.size(); ++d) {
    const DatasetConfig& config = datasets[d].config;
    const auto files = files_by_stem(config.cache_directory, model);
    const auto due = due_items(datasets[d], d, options, [&](const DatasetItem& item) {
      const auto at = files.find(item.stem);
      return at == files.end() || at->second.size() != 1 ||
             !is_current(config.cache_directory / at->second.front(), config, item, model, latent_encoder(options),
                         check_of(options));
    });
    tasks.insert(tasks.end(), due.begin(), due.end());
  }
  return tasks;
}

std::vector<CacheTask> text_tasks(const std::vector<Dataset>& datasets, const CacheModel& model, const CacheOptions& options) {
  std::vector<CacheTask> tasks;
  for (size_t d = 0; d < datasets.size(); ++d) {
    const Dataset& dataset = datasets[d];
    const auto current = [&](const CacheTask& task, const std::vector<std::string>& captions) {
      return is_current(text_path(dataset, task, model), captions, model, options.encoder, check_of(options));
    };
    const auto due = due_items(dataset, d, options, [&](const DatasetItem& item) {
      const CacheTask task{d, static_cast<size_t>(&item - dataset.items.data()), false};
      return !current(task, expected_texts(dataset, item, text_path(dataset, task, model), model, options));
    });
    tasks.insert(tasks.end(), due.begin(), due.end());
    const CacheTask empty{d, 0, true};
    if (dataset.config.caption_dropout_rate > 0 && (options.everything || !current(empty, {""}))) tasks.push_back(empty);
  }
  return tasks;
}

void make_latent_caches(const std::vector<Dataset>& datasets, const std::vector<CacheTask>& tasks, const CacheModel& model,
                        const EncodeTrainingImage& encode, const CacheOptions& options, const CacheProgress& progress) {
  const std::string encoder = latent_encoder(options);
  std::mutex logging;
  const Log log([&](LogLevel level, const std::string& text) {
    const std::lock_guard lock(logging);
    if (level == LogLevel::Warning) options.log.warn("{}", text);
    else options.log.info("{}", text);
  });
  struct Decoded {
    PreparedItem prepared;
    SourceMarks marks;
  };
  OrderedWorkers<Decoded> images(tasks.size(), worker_count(options), [&](size_t i) {
    const DatasetConfig& config = datasets[tasks[i].dataset].config;
    const DatasetItem& item = datasets[tasks[i].dataset].items[tasks[i].item];
    // The marks come first: if a file is replaced in between, they do not match it and the latents are made again.
    SourceMarks marks = source_marks(config, item, encoder, true);
    return Decoded{prepare_item(config, item, read_sources(config, item, options.limits, log)), std::move(marks)};
  });
  std::vector<std::map<std::string, std::vector<std::string>>> older;
  older.reserve(datasets.size());
  for (const Dataset& dataset : datasets) older.push_back(files_by_stem(dataset.config.cache_directory, model));
  const auto total = static_cast<int64_t>(tasks.size());
  if (progress) progress(0, total);
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Dataset& dataset = datasets[tasks[i].dataset];
    const DatasetItem& item = dataset.items[tasks[i].item];
    const Decoded decoded = *images.next();
    LatentCache cache = encoded(decoded.prepared, dataset.config.flip_aug, encode);
    cache.notes = as_notes(decoded.marks);
    const fs::path path = dataset.config.cache_directory / latent_file_name(item.stem, cache.original, model);
    write_latent_cache(path, std::move(cache), model, options.latent_dtype, options.log);
    // A file of the same image in another size would be trained on, too.
    for (const std::string& name : older[tasks[i].dataset][item.stem])
      if (std::error_code ignored; name != path.filename()) fs::remove(path.parent_path() / name, ignored);
    if (progress) progress(static_cast<int64_t>(i + 1), total);
  }
}

void make_text_caches(const std::vector<Dataset>& datasets, const std::vector<CacheTask>& tasks, const CacheModel& model,
                      const EncodeTexts& encode, const CacheOptions& options, const CacheProgress& progress) {
  const auto batch = static_cast<size_t>(std::max<int64_t>(1, options.text_batch));
  const auto total = static_cast<int64_t>(tasks.size());
  if (progress) progress(0, total);
  std::vector<std::string> waiting;         // texts whose states are not known yet
  std::vector<std::vector<float>> encoded;  // those that are, of the tasks from `first` on
  size_t first = 0, last = 0;
  const auto captions_of = [&](const CacheTask& task) {
    return task.empty_caption ? std::vector<std::string>{""} : datasets[task.dataset].items[task.item].captions;
  };
  while (first < tasks.size()) {
    while (waiting.size() < batch && last < tasks.size())
      for (std::string& text : captions_of(tasks[last++])) waiting.push_back(std::move(text));
    if (!waiting.empty()) {
      const auto end = waiting.begin() + static_cast<ptrdiff_t>(std::min(batch, waiting.size()));
      const std::vector<std::string> texts(waiting.begin(), end);
      waiting.erase(waiting.begin(), end);
      std::vector<std::vector<float>> states = encode(texts);
      require(states.size() == texts.size(), "the encoder returned {} states for {} texts", states.size(), texts.size());
      std::move(states.begin(), states.end(), std::back_inserter(encoded));
    }
    // Every task whose texts are all known.
    while (first < last) {
      CaptionCache cache;
      cache.captions = captions_of(tasks[first]);
      if (encoded.size() < cache.captions.size()) break;
      const auto end = encoded.begin() + static_cast<ptrdiff_t>(cache.captions.size());
      std::move(encoded.begin(), end, std::back_inserter(cache.states));
      encoded.erase(encoded.begin(), end);
      cache.notes = caption_notes(cache.captions, options.encoder);
      write_caption_cache(text_path(datasets[tasks[first].dataset], tasks[first], model), std::move(cache), model,
                          options.text_dtype, options.log);
      ++first;
      if (progress) progress(static_cast<int64_t>(first), total);
    }
  }
}

int64_t remove_foreign_caches(const std::vector<Dataset>& datasets, const CacheModel& model, const Log& log) {
  int64_t removed = 0;
  for (const Dataset& dataset : datasets) {
    const fs::path& folder = dataset.config.cache_directory;
    std::set<std::string> stems, texts;
    for (const DatasetItem& item : dataset.items) {
      stems.insert(item.stem);
      texts.insert(text_file_name(item.stem, model));
    }
    const auto remove = [&](const std::string& name) {
      std::error_code fault;
      if (fs::remove(folder / name, fault)) {
        ++removed;
        log.info("removed {}, which belongs to no image", (folder / name).string());
      }
    };
    for (const std::string& name : latent_files(folder, model)) {
      const auto parsed = parse_latent_file_name(name, model);
      if (parsed && !stems.contains(parsed->stem)) remove(name);
    }
    for (const std::string& name : text_files(folder, model))
      if (!texts.contains(name)) remove(name);
  }
  return removed;
}

}  // namespace flux2
