#include "weights/weight_source.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "weights/quantised_values.h"
#include "weights/weight_files.h"

namespace flux2 {

WeightSource::WeightSource(std::vector<StoredTensor> tensors, std::map<std::string, std::string> metadata,
                           std::string description)
    : tensors_(std::move(tensors)),
      by_name_(tensors_.size()),
      metadata_(std::move(metadata)),
      description_(std::move(description)) {
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  for (size_t i = 1; i < by_name_.size(); ++i) {
    const StoredTensor &a = tensors_[by_name_[i - 1]], &b = tensors_[by_name_[i]];
    if (a.name != b.name) continue;
    const auto file = [](const StoredTensor& t) { return t.file ? t.file->path().filename().string() : "memory"; };
    fail(ErrorCode::BadFile, "{}: tensor {} is in {} and in {}", description_, printable(a.name), file(a), file(b));
  }
}

const StoredTensor* WeightSource::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

std::vector<std::string> WeightSource::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const StoredTensor& t : tensors_) names.push_back(t.name);
  return names;
}

uint64_t WeightSource::total_bytes() const {
  return std::accumulate(tensors_.begin(), tensors_.end(), uint64_t{0},
                         [](uint64_t sum, const StoredTensor& t) { return sum + t.bytes.size(); });
}

Tensor WeightSource::open(std::string_view name, const Shard& shard) const {
  const StoredTensor* tensor = find(name);
  if (!tensor) fail(ErrorCode::NotFound, "{} has no tensor {}", description_, name);
  return in_context(description_, [&] { return open_tensor(*tensor, shard); });
}

std::shared_ptr<const WeightSource> open_weights(const std::filesystem::path& path, const Log& log) {
  WeightFiles files = read_weight_files(path, log);
  in_context(files.description, [&] { attach_quantised_values(files.tensors, files.metadata); });
  if (files.tensors.empty()) fail(ErrorCode::BadFile, "{} contains no tensors", files.description);
  return std::make_shared<const WeightSource>(std::move(files.tensors), std::move(files.metadata), std::move(files.description));
}

}  // namespace flux2
