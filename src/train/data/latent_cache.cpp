#include "train/data/latent_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/data/cache_values.h"
#include "weights/safetensors_file.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostReferences = 1000;

std::string sized_key(std::string_view name, LatentSize size, const char* type) {
  return fmt::format("{}_{}x{}_{}", name, size.rows, size.columns, type);
}

std::string reference_key(bool flipped, size_t index) {
  return fmt::format("{}latents_control_{}", flipped ? "flip_" : "", index);
}

// The tensors of a latent file by what they are.
struct LatentFile {
  SafetensorsFile file;
  std::map<std::string, const StoredTensor*> tensors;

  LatentFile(const fs::path& path, const CacheModel& model) : file(path) {
    check_architecture(file.metadata(), model);
    for (const StoredTensor& t : file.tensors()) {
      const std::string name = content_name(t.name);
      if (name != "lossmask" && !name.starts_with("latents") && !name.starts_with("flip_latents")) continue;
      const Shape plane = name == "lossmask" ? Shape{1} : Shape{kLatentChannels};
      if (t.shape.rank() != 3 || t.shape[0] != plane[0] || t.shape[1] < 1 || t.shape[2] < 1)
        fail(ErrorCode::BadFile, "the tensor {} has the shape {}, not [{}, rows, columns]", t.name, t.shape, plane[0]);
      if (!tensors.emplace(name, &t).second) fail(ErrorCode::BadFile, "it has two tensors for {}", name);
    }
    if (!find("latents")) fail(ErrorCode::BadFile, "it has no tensor latents_…: it is not a latent cache of FLUX.2");
  }

  const StoredTensor* find(const std::string& name) const {
    const auto at = tensors.find(name);
    return at == tensors.end() ? nullptr : at->second;
  }

  LatentSize size_of(const std::string& name) const {
    const StoredTensor& t = *find(name);
    return {t.shape[1], t.shape[2]};
  }

  size_t references(bool flipped) const {
    size_t count = 0;
    while (find(reference_key(flipped, count))) ++count;
    return count;
  }

  Latents latents(const std::string& name) const { return {size_of(name), floats_of(*find(name))}; }
};

PixelSize original_size(const fs::path& path, const CacheModel& model) {
  const auto name = parse_latent_file_name(path.filename().string(), model);
  if (!name) fail(ErrorCode::BadFile, "its name does not end in _WIDTHxHEIGHT_{}.safetensors", model.suffix);
  return name->original;
}

}  // namespace

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::F32: return "float32";
    case DType::BF16: return "bfloat16";
    case DType::F16: return "float16";
    default: fail(ErrorCode::InvalidArgument, "caches cannot hold {}; use float32, bfloat16 or float16", name_of(dtype));
  }
}

void write_latent_cache(const fs::path& path, LatentCache cache, const CacheModel& model, DType dtype, const Log& log) {
  const char* type = torch_name(dtype);
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto add = [&](const std::string& name, Latents& latents) {
    const int64_t rows = latents.size.rows, columns = latents.size.columns;
    require(static_cast<int64_t>(latents.values.size()) == kLatentChannels * rows * columns, "{} has {} values for {}×{}", name,
            latents.values.size(), rows, columns);
    replace_nans(latents.values, name, path, log);
    tensors.emplace_back(sized_key(name, latents.size, type),
                         rounded_tensor(latents.values, dtype, {kLatentChannels, rows, columns}));
  };
  add("latents", cache.target);
  for (size_t i = 0; i < cache.references.size(); ++i) add(reference_key(false, i), cache.references[i]);
  if (!cache.flipped.values.empty()) add("flip_latents", cache.flipped);
  for (size_t i = 0; i < cache.flipped_references.size(); ++i) add(reference_key(true, i), cache.flipped_references[i]);
  const LatentSize size = cache.target.size;
  if (!cache.mask.empty()) {
    require(static_cast<int64_t>(cache.mask.size()) == size.tokens(), "the mask has {} values for {}×{}", cache.mask.size(),
            size.rows, size.columns);
    tensors.emplace_back(sized_key("lossmask", size, "float32"),
                         rounded_tensor(cache.mask, DType::F32, {1, size.rows, size.columns}));
  }
  std::map<std::string, std::string> metadata = cache.notes;
  metadata["architecture"] = model.full_name;
  metadata["width"] = fmt::format("{}", cache.original.width);
  metadata["height"] = fmt::format("{}", cache.original.height);
  metadata["format_version"] = kCacheVersion;
  save_tensors(path, tensors, metadata);
}

LatentSummary read_latent_summary(const fs::path& path, const CacheModel& model) {
  return in_context(path.string(), [&] {
    const LatentFile file(path, model);
    LatentSummary summary;
    summary.original = original_size(path, model);
    summary.target = file.size_of("latents");
    const size_t references = file.references(false);
    check(references <= kMostReferences, "it has {} references", references);
    for (size_t i = 0; i < references; ++i) summary.references.push_back(file.size_of(reference_key(false, i)));
    // Mirrored latents count only if they are complete.
    summary.has_flip = file.find("flip_latents") && file.size_of("flip_latents") == summary.target;
    for (size_t i = 0; i < references && summary.has_flip; ++i)
      summary.has_flip = file.find(reference_key(true, i)) && file.size_of(reference_key(true, i)) == summary.references[i];
    summary.has_mask = file.find("lossmask") && file.size_of("lossmask") == summary.target;
    summary.metadata = file.file.metadata();
    return summary;
  });
}

LatentCache read_latent_cache(const fs::path& path, const CacheModel& model, bool flipped) {
  return in_context(path.string(), [&] {
    const LatentFile file(path, model);
    LatentCache cache;
    cache.original = original_size(path, model);
    const std::string target = flipped ? "flip_latents" : "latents";
    if (!file.find(target)) fail(ErrorCode::BadFile, "it has no mirrored latents");
    const size_t references = file.references(false);
    if (flipped && file.references(true) != references) fail(ErrorCode::BadFile, "it has no mirrored latents of its references");
    (flipped ? cache.flipped : cache.target) = file.latents(target);
    for (size_t i = 0; i < references; ++i)
      (flipped ? cache.flipped_references : cache.references).push_back(file.latents(reference_key(flipped, i)));
    if (const StoredTensor* mask = file.find("lossmask")) cache.mask = floats_of(*mask);
    for (const auto& [name, value] : file.file.metadata())
      if (name.starts_with("flux2.")) cache.notes[name] = value;
    return cache;
  });
}

}  // namespace flux2
