#include "weights/weight_files.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "weights/gguf_file.h"
#include "weights/safetensors_file.h"
#include "weights/weight_index.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kGgufExtension = ".gguf";
constexpr std::string_view kIndexExtension = ".safetensors.index.json";
constexpr int kMaxParts = 10'000;

bool ends_with(const fs::path& path, std::string_view ending) { return path.filename().string().ends_with(ending); }

// "a, b, c and 7 more"
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i ? ", " : "") + printable(names[i]);
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

std::optional<int> small_number(std::string_view text) {
  if (text.empty() || text.size() > 6) return std::nullopt;
  int n = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    n = 10 * n + (c - '0');
  }
  return n;
}

// The content decides, whatever the file is called.
WeightFiles read_single(const fs::path& path, const Log& log) {
  if (is_gguf(path)) {
    GgufFile file(path, log);
    auto metadata = file.metadata();
    return {std::move(file).take_tensors(), std::move(metadata), path.string()};
  }
  SafetensorsFile file(path, log);
  auto metadata = file.metadata();
  return {std::move(file).take_tensors(), std::move(metadata), path.string()};
}

void append(WeightFiles& files, WeightFiles&& more) {
  if (files.tensors.empty()) files.metadata = std::move(more.metadata);
  std::move(more.tensors.begin(), more.tensors.end(), std::back_inserter(files.tensors));
}

void require_files(const fs::path& folder, const std::vector<std::string>& names, const std::string& who) {
  std::vector<std::string> missing;
  for (const auto& name : names)
    if (!is_file(folder / name)) missing.push_back(name);
  if (!missing.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("{}: {} of {} files are missing: {}", who, missing.size(), names.size(), listed(missing)),
                "download the missing files into the same folder");
}

WeightFiles read_series(const fs::path& path, const SeriesName& series, const Log& log) {
  check(series.count >= 1 && series.count <= kMaxParts && series.part >= 1 && series.part <= series.count,
        "{}: part {} of {} is not valid", path.string(), series.part, series.count);
  std::vector<std::string> names;
  for (int i = 1; i <= series.count; ++i) names.push_back(series.name_of(i));
  require_files(path.parent_path(), names, path.string());
  WeightFiles files;
  for (const auto& name : names) append(files, read_single(path.parent_path() / name, log));
  files.description = fmt::format("{} ({} files)", (path.parent_path() / series.stem).string(), series.count);
  return files;
}

// Keeps the tensors of one shard that the index maps to it; the others stay out with a warning.
void keep_mapped(std::vector<StoredTensor>& tensors, const std::vector<std::string>& mapped, const fs::path& shard,
                 const Log& log) {
  std::vector<std::string> present, extra, absent;
  for (const auto& t : tensors) present.push_back(t.name);
  std::sort(present.begin(), present.end());
  std::set_difference(mapped.begin(), mapped.end(), present.begin(), present.end(), std::back_inserter(absent));
  if (!absent.empty())
    fail(ErrorCode::BadFile, "{} does not contain tensors that the index assigns to it: {}", shard.string(), listed(absent));
  std::set_difference(present.begin(), present.end(), mapped.begin(), mapped.end(), std::back_inserter(extra));
  if (extra.empty()) return;
  log.warn("{}: ignoring {} tensors that are not in the index: {}", shard.string(), extra.size(), listed(extra));
  std::erase_if(tensors, [&](const StoredTensor& t) { return !std::binary_search(mapped.begin(), mapped.end(), t.name); });
}

// The same name in two shards is an error even where the index picks one of them.
void check_distinct(std::vector<std::string>& names, const fs::path& index) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorCode::BadFile, "{}: tensor {} is in two of the files", index.string(), printable(*twice));
}

WeightFiles read_index(const fs::path& path, const Log& log) {
  const WeightIndex index = read_weight_index(path);
  const fs::path folder = path.parent_path();
  std::vector<std::string> shards, tensor_names;
  for (const auto& [name, mapped] : index.tensors_of_file) shards.push_back(name);
  require_files(folder, shards, path.string());

  WeightFiles files;
  files.description = path.string();
  for (const auto& [name, mapped] : index.tensors_of_file) {
    WeightFiles shard = read_single(folder / name, log);
    for (const auto& t : shard.tensors) tensor_names.push_back(t.name);
    keep_mapped(shard.tensors, mapped, folder / name, log);
    append(files, std::move(shard));
  }
  check_distinct(tensor_names, path);
  uint64_t bytes = 0;
  for (const auto& t : files.tensors) bytes += t.bytes.size();
  if (index.total_size && *index.total_size != bytes)
    log.warn("{}: total_size is {}, the tensors have {} bytes", path.string(), *index.total_size, bytes);
  return files;
}

// diffusers prefers the single file when both lie side by side, and so do we.
WeightFiles read_index_or_single(const fs::path& index, const Log& log) {
  std::string name = index.filename().string();
  name.resize(name.size() - kIndexExtension.size() + kExtension.size());
  const fs::path single = index.parent_path() / name;
  if (!is_file(single)) return read_index(index, log);
  log.info("using {} instead of the index beside it", single.string());
  return read_single(single, log);
}

WeightFiles read_part(const fs::path& path, const SeriesName& series, const Log& log) {
  const fs::path index = path.parent_path() / (series.stem + std::string(kIndexExtension));
  return is_file(index) ? read_index(index, log) : read_series(path, series, log);
}

// The usual names first, then the only index, then the only file; of a series its first part stands for the whole.
WeightFiles read_folder(const fs::path& folder, const Log& log) {
  for (const char* stem : {"model", "diffusion_pytorch_model"}) {
    const fs::path single = folder / (stem + std::string(kExtension)), index = folder / (stem + std::string(kIndexExtension));
    if (is_file(index)) return read_index_or_single(index, log);
    if (is_file(single)) return read_single(single, log);
  }
  std::vector<std::string> indices, singles;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
    const fs::path path = entry->path();
    const auto series = series_name(path);
    if (ends_with(path, kIndexExtension)) indices.push_back(path.filename().string());
    else if ((ends_with(path, kExtension) || ends_with(path, kGgufExtension)) && (!series || series->part == 1))
      singles.push_back(path.filename().string());
  }
  if (failure) fail(ErrorCode::NotFound, "cannot read folder {}: {}", folder.string(), failure.message());
  std::sort(indices.begin(), indices.end());
  std::sort(singles.begin(), singles.end());
  if (indices.size() == 1) return read_index_or_single(folder / indices[0], log);
  if (indices.empty() && singles.size() == 1) return read_weight_files(folder / singles[0], log);
  auto& found = indices.empty() ? singles : indices;
  if (found.empty()) fail(ErrorCode::NotFound, "folder {} contains no .safetensors or .gguf file", folder.string());
  throw Error(ErrorCode::InvalidArgument, fmt::format("folder {} contains several models: {}", folder.string(), listed(found)),
              "name the file to use");
}

}  // namespace

std::string SeriesName::name_of(int i) const { return fmt::format("{}-{:0{}}{}", stem, i, digits, tail); }

std::optional<SeriesName> series_name(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string_view extension = name.ends_with(kGgufExtension) ? kGgufExtension : kExtension;
  if (!name.ends_with(extension)) return std::nullopt;
  const std::string_view base(name.data(), name.size() - extension.size());
  const size_t of = base.rfind("-of-");
  if (of == std::string_view::npos || of == 0) return std::nullopt;
  const size_t dash = base.rfind('-', of - 1);
  if (dash == std::string_view::npos) return std::nullopt;
  const auto part = small_number(base.substr(dash + 1, of - dash - 1)), count = small_number(base.substr(of + 4));
  if (!part || !count) return std::nullopt;
  return SeriesName{std::string(base.substr(0, dash)), of - dash - 1, *part, *count, name.substr(of)};
}

WeightFiles read_weight_files(const fs::path& path, const Log& log) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return read_folder(path, log);
  if (ends_with(path, kIndexExtension)) return read_index_or_single(path, log);
  if (const auto series = series_name(path)) return read_part(path, *series, log);
  return read_single(path, log);
}

}  // namespace flux2
