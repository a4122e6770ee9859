#include "train/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "train/data/json_lines.h"
#include "train/data/match_files.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

template <class... Args>
void add_finding(Dataset& dataset, Finding::Kind kind, fmt::format_string<Args...> format, Args&&... args) {
  dataset.findings.push_back({kind, fmt::format(format, std::forward<Args>(args)...)});
}

// The images of a folder whose captions are known, with them.
struct CaptionedFile {
  ListedFile file;
  std::string caption;
};

std::vector<CaptionedFile> captioned_files(Dataset& dataset, const std::vector<ListedFile>& images) {
  const DatasetConfig& config = dataset.config;
  std::vector<CaptionedFile> kept;
  std::vector<std::string> without;
  for (const ListedFile& image : images) {
    const fs::path file = image.path.parent_path() / (image.stem + config.caption_extension);
    if (!config.caption_extension.empty() && is_file(file)) {
      try {
        kept.push_back({image, caption_of_file(file)});
        if (kept.back().caption.empty()) add_finding(dataset, Finding::Warns, "the caption file {} is empty", file.string());
      } catch (const Error& e) {
        add_finding(dataset, Finding::Stops, "{}", e.what());
      }
    } else if (config.caption_default) {
      kept.push_back({image, *config.caption_default});
    } else {
      without.push_back(image.name);
    }
  }
  const std::string folder = config.image_directory.string();
  if (images.empty())
    add_finding(dataset, Finding::Stops, "{} contains no images; png, jpg, jpeg, webp and bmp files are read", folder);
  else if (kept.empty() && !without.empty())
    add_finding(dataset, Finding::Stops,
                "no image in {} has a caption: write a text file beside each, for example {}, or set caption_default", folder,
                images.front().stem + config.caption_extension);
  else if (!without.empty())
    add_finding(dataset, Finding::Warns, "no caption file ({}) for {} of {} images in {}; left out: {}", config.caption_extension,
                without.size(), images.size(), folder, some_of(without));
  return kept;
}

// The files of a folder that belong to each target: its references or its image prompts. Every target needs one.
std::vector<std::vector<fs::path>> partners(Dataset& dataset, const std::vector<ListedFile>& targets, const fs::path& folder,
                                            const char* what) {
  if (folder.empty()) return std::vector<std::vector<fs::path>>(targets.size());
  auto matched = match_references(targets, list_images(folder, dataset.config.recursive), what, dataset.findings);
  std::vector<std::string> missing;
  for (size_t i = 0; i < targets.size(); ++i)
    if (matched[i].empty()) missing.push_back(targets[i].name);
  if (!missing.empty())
    add_finding(dataset, Finding::Stops,
                "no {} in {} for {} of {} images: {}; the file has the name of its image, or that and _0, _1, …", what,
                folder.string(), missing.size(), targets.size(), some_of(missing));
  return matched;
}

void list_folder(Dataset& dataset) {
  const DatasetConfig& config = dataset.config;
  const std::vector<fs::path> others = {config.control_directory, config.mask_directory, config.cache_directory,
                                        config.image_prompt_directory};
  const std::vector<ListedFile> images = list_images(config.image_directory, config.recursive, others);
  const std::vector<CaptionedFile> kept = captioned_files(dataset, images);

  std::vector<ListedFile> targets;
  targets.reserve(kept.size());
  for (const CaptionedFile& c : kept) targets.push_back(c.file);
  auto references = partners(dataset, targets, config.control_directory, "reference");
  auto image_prompts = partners(dataset, targets, config.image_prompt_directory, "image prompt");
  for (size_t i = 0; i < kept.size(); ++i)
    dataset.items.push_back({.image = targets[i].path,
                             .stem = targets[i].stem,
                             .captions = {kept[i].caption},
                             .references = std::move(references[i]),
                             .mask = {},
                             .image_prompts = std::move(image_prompts[i]),
                             .group = {}});
}

// Either all lines name image prompts or none does.
void check_image_prompts_of_lines(Dataset& dataset) {
  std::vector<std::string> missing;
  for (const DatasetItem& item : dataset.items)
    if (item.image_prompts.empty()) missing.push_back(item.image.filename().string());
  if (missing.size() == dataset.items.size()) return;
  const std::string file = dataset.config.image_jsonl_file.string();
  if (!missing.empty())
    add_finding(dataset, Finding::Stops, "{}: some lines have image_prompt_path, but {} of {} do not: {}", file, missing.size(),
                dataset.items.size(), some_of(missing));
  if (dataset.config.image_prompt_group != ImageGroup::None)
    add_finding(dataset, Finding::Stops, "{}: lines have image_prompt_path, so image_prompt_group cannot be used with it", file);
}

void list_lines(Dataset& dataset) {
  const DatasetConfig& config = dataset.config;
  size_t number = 0;
  for (JsonLine& line : read_json_lines(config.image_jsonl_file)) {
    number = line.number;
    if (!line.caption) line.caption = config.caption_default;
    if (!line.caption) {
      add_finding(dataset, Finding::Stops, "{}, line {}: \"caption\" is missing", config.image_jsonl_file.string(), number);
      continue;
    }
    bool there = true;
    const auto look = [&](const fs::path& path) {
      if (is_file(path)) return;
      there = false;
      add_finding(dataset, Finding::Stops, "{}, line {}: the file {} does not exist", config.image_jsonl_file.string(), number,
                  path.string());
    };
    look(line.image);
    for (const fs::path& path : line.references) look(path);
    for (const fs::path& path : line.image_prompts) look(path);
    if (there)
      dataset.items.push_back({.image = line.image,
                               .stem = line.image.stem().string(),
                               .captions = {*line.caption},
                               .references = std::move(line.references),
                               .mask = {},
                               .image_prompts = std::move(line.image_prompts),
                               .group = {}});
  }
  check_image_prompts_of_lines(dataset);
  if (number == 0) add_finding(dataset, Finding::Stops, "{} lists no images", config.image_jsonl_file.string());
}

void find_masks(Dataset& dataset) {
  const DatasetConfig& config = dataset.config;
  if (config.mask_directory.empty()) return;
  std::map<std::pair<std::string, std::string>, fs::path> masks;
  for (const ListedFile& file : list_images(config.mask_directory, config.recursive)) masks[{file.folder, file.stem}] = file.path;
  std::vector<std::string> without;
  for (DatasetItem& item : dataset.items) {
    const fs::path inside = config.recursive ? item.image.lexically_relative(config.image_directory).parent_path() : fs::path();
    const auto found = masks.find({inside.generic_string(), item.stem});
    if (found != masks.end()) item.mask = found->second;
    else without.push_back(item.image.filename().string());
  }
  if (!without.empty())
    add_finding(dataset, Finding::Warns, "no mask in {} for {} of {} images, so all of the image counts: {}",
                config.mask_directory.string(), without.size(), dataset.items.size(), some_of(without));
}

// Called while captions are as they were written.
void find_groups(Dataset& dataset) {
  const ImageGroup by = dataset.config.image_prompt_group;
  if (by == ImageGroup::None) return;
  std::map<std::string, size_t> sizes;
  for (DatasetItem& item : dataset.items) {
    item.group = by == ImageGroup::Folder ? item.image.parent_path().lexically_normal().string()
                                          : std::string(trimmed(item.captions.front()));
    ++sizes[*item.group];
  }
  std::vector<std::string> alone;
  for (const DatasetItem& item : dataset.items)
    if (sizes[*item.group] == 1) alone.push_back(item.image.filename().string());
  if (!alone.empty())
    add_finding(dataset, Finding::Stops, "image_prompt_group needs another image {} for each image; {} of {} have none: {}",
                by == ImageGroup::Folder ? "in the same folder" : "with the same caption", alone.size(), dataset.items.size(),
                some_of(alone));
}

// Two images with one stem would share their cache files.
void find_equal_stems(Dataset& dataset) {
  std::map<std::string, const DatasetItem*> seen;
  for (const DatasetItem& item : dataset.items) {
    const auto [at, is_new] = seen.emplace(item.stem, &item);
    if (!is_new)
      add_finding(dataset, Finding::Stops,
                  "{} and {} have the same name without folder and extension, so they would share a cache file: rename one",
                  at->second->image.string(), item.image.string());
  }
}

void note_reference_counts(const Dataset& dataset, size_t index, const Log& log) {
  if (!dataset.has_references()) return;
  std::map<size_t, size_t> counts;
  for (const DatasetItem& item : dataset.items) ++counts[item.references.size()];
  for (const auto& [references, items] : counts)
    log.info("{}: {} images have {} references", dataset_name(index), items, references);
}

}  // namespace

std::string dataset_name(size_t index) { return fmt::format("datasets[{}]", index); }

bool Dataset::has_references() const {
  return std::any_of(items.begin(), items.end(), [](const DatasetItem& item) { return !item.references.empty(); });
}

Dataset list_dataset(const DatasetConfig& config, const ListOptions& options) {
  check(!config.scenes,
        "scenes are drawn while training runs on this machine; they have no files that could be listed or cached");
  Dataset dataset{config, {}, {}};
  try {
    if (config.image_jsonl_file.empty()) list_folder(dataset);
    else list_lines(dataset);
    find_masks(dataset);
    find_groups(dataset);
    find_equal_stems(dataset);
  } catch (const Error& e) {
    add_finding(dataset, Finding::Stops, "{}", e.what());
  }
  for (DatasetItem& item : dataset.items) {
    item.written_caption = item.captions.front();
    item.captions = caption_texts(config, item.written_caption, options.caption_variants);
  }
  return dataset;
}

void report_findings(const std::vector<Finding>& findings, const Log& log) {
  std::vector<std::string> stops;
  for (const Finding& finding : findings)
    if (finding.kind == Finding::Stops) stops.push_back(finding.text);
    else log.warn("{}", finding.text);
  if (stops.empty()) return;
  const std::string more = stops.size() > 1 ? fmt::format(" (and {} more problems of this kind)", stops.size() - 1) : "";
  throw Error(ErrorCode::InvalidArgument, stops.front() + more,
              stops.size() > 1 ? Hint("list all of them with {0}", {run_command("dataset check CONFIG")}) : Hint());
}

std::vector<Dataset> list_datasets(const std::vector<DatasetConfig>& configs, const ListOptions& options, const Log& log) {
  std::vector<Dataset> datasets;
  for (const DatasetConfig& config : configs) {
    const size_t index = datasets.size();
    datasets.push_back(list_dataset(config, options));
    in_context(dataset_name(index), [&] { report_findings(datasets.back().findings, log); });
    note_reference_counts(datasets.back(), index, log);
  }
  return datasets;
}

}  // namespace flux2
