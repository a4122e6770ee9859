#include "train/data/caption_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/path_exists.h"
#include "base/sha256.h"
#include "train/data/cache_names.h"
#include "train/data/cache_values.h"
#include "train/data/latent_cache.h"
#include "weights/safetensors_file.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kStates = "ctx_vec";
constexpr size_t kHeaderAlignment = 256;

// Which variant a tensor is: −1 for the only caption, none if it is something else.
std::optional<int64_t> variant_of(const std::string& key) {
  const std::string name = without_dtype(key);
  if (name == kStates) return -1;
  const std::string start = std::string(kStates) + "_";
  const std::string digits = name.starts_with(start) ? name.substr(start.size()) : "";
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != digits.npos) return {};
  return std::stoll(digits);
}

struct CaptionFile {
  SafetensorsFile file;
  std::map<int64_t, const StoredTensor*> states;

  CaptionFile(const fs::path& path, const CacheModel& model) : file(path) {
    check_architecture(file.metadata(), model);
    const Shape expected{model.text_length, model.text_width};
    for (const StoredTensor& t : file.tensors()) {
      const auto variant = variant_of(t.name);
      if (!variant) continue;
      if (t.shape != expected)
        fail(ErrorCode::Incompatible, "the tensor {} has the shape {}, but the model needs {}", t.name, t.shape, expected);
      if (!states.emplace(*variant, &t).second) fail(ErrorCode::BadFile, "it has two tensors for {}", without_dtype(t.name));
    }
    if (states.empty()) fail(ErrorCode::BadFile, "it has no tensor ctx_vec_…: it is not a text cache of FLUX.2");
    if (!is_plain())
      for (int64_t k = 0; k < variants(); ++k)
        if (!states.contains(k)) fail(ErrorCode::BadFile, "it lacks the tensor ctx_vec_{}", k);
  }

  bool is_plain() const { return states.contains(-1); }
  int64_t variants() const { return is_plain() ? 0 : static_cast<int64_t>(states.size()); }
};

// A header as Python's json.dumps writes it, so that a file of ours has the bytes of one of musubi-tuner.
class PythonHeader {
 public:
  void add(const std::string& key, const std::string& value) { text_ += (text_.empty() ? "" : ", ") + quote(key) + ": " + value; }
  static std::string quote(const std::string& text) { return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace); }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

struct OutTensor {
  std::string name;
  Tensor values;
};

void write_aligned(const fs::path& path, const std::vector<OutTensor>& tensors,
                   const std::vector<std::pair<std::string, std::string>>& metadata) {
  PythonHeader notes, header;
  for (const auto& [key, value] : metadata) notes.add(key, PythonHeader::quote(value));
  header.add("__metadata__", notes.object());
  int64_t offset = 0;
  for (const OutTensor& t : tensors) {
    const int64_t end = offset + t.values.bytes();
    const Shape& shape = t.values.shape();
    header.add(t.name, fmt::format("{{\"dtype\": \"{}\", \"shape\": [{}], \"data_offsets\": [{}, {}]}}",
                                   name_of(t.values.dtype()), fmt::join(shape.begin(), shape.end(), ", "), offset, end));
    offset = end;
  }
  std::string text = header.object();
  const size_t whole = (text.size() + 8 + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment;
  text.resize(whole - 8, ' ');
  std::string length;
  for (size_t i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i));

  AtomicFile file(path);
  file.write(length.data(), length.size());
  file.write(text.data(), text.size());
  for (const OutTensor& t : tensors) file.write(t.values.raw(), static_cast<size_t>(t.values.bytes()));
  file.commit();
}

using Metadata = std::vector<std::pair<std::string, std::string>>;

// Adds what an existing file holds besides the states of captions. A damaged file holds nothing.
void keep_others(const fs::path& path, const CacheModel& model, const std::string& caption, std::vector<OutTensor>& tensors,
                 Metadata& metadata, const Log& log) {
  try {
    const SafetensorsFile old(path);
    check_architecture(old.metadata(), model);
    for (const StoredTensor& t : old.tensors())
      if (!variant_of(t.name) && t.dtype) tensors.push_back({t.name, Tensor::host_copy(t.bytes.data(), *t.dtype, t.shape)});
    for (const auto& entry : old.metadata()) {
      const bool known = std::any_of(metadata.begin(), metadata.end(), [&](const auto& m) { return m.first == entry.first; });
      if (!entry.first.starts_with("flux2.") && !known) metadata.emplace_back(entry);
    }
    const auto at = old.metadata().find("caption1");
    if (at != old.metadata().end() && at->second != caption) log.info("{}: the caption has changed", path.string());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::BadFile) throw Error(e.code(), path.string() + ": " + e.what(), e.hint());
    log.warn("{} is damaged and is written again: {}", path.string(), e.what());
  }
}

}  // namespace

std::string captions_hash(const std::vector<std::string>& captions) {
  std::string all;
  for (const std::string& caption : captions) all += fmt::format("{}:{},", caption.size(), caption);
  return sha256(std::as_bytes(std::span(all)));
}

void write_caption_cache(const fs::path& path, CaptionCache cache, const CacheModel& model, DType dtype, const Log& log) {
  require(!cache.captions.empty() && cache.captions.size() == cache.states.size(), "{} captions have {} states",
          cache.captions.size(), cache.states.size());
  const char* type = torch_name(dtype);
  const Shape shape{model.text_length, model.text_width};
  std::vector<OutTensor> tensors;
  for (size_t k = 0; k < cache.states.size(); ++k) {
    const std::string name = cache.states.size() == 1 ? kStates : fmt::format("{}_{}", kStates, k);
    require(static_cast<int64_t>(cache.states[k].size()) == shape.numel(), "{} has {} values for {}", name,
            cache.states[k].size(), shape);
    replace_nans(cache.states[k], name, path, log);
    tensors.push_back({name + "_" + type, rounded_tensor(cache.states[k], dtype, shape)});
  }
  Metadata metadata = {
      {"architecture", model.full_name}, {"caption1", cache.captions.front()}, {"format_version", kCacheVersion}};
  for (const auto& [name, value] : cache.notes) metadata.emplace_back(name, value);

  if (path_exists(path)) keep_others(path, model, cache.captions.front(), tensors, metadata, log);
  write_aligned(path, tensors, metadata);
}

CaptionSummary read_caption_summary(const fs::path& path, const CacheModel& model) {
  return in_context(path.string(), [&] {
    const CaptionFile file(path, model);
    CaptionSummary summary;
    summary.metadata = file.file.metadata();
    if (const auto at = summary.metadata.find("caption1"); at != summary.metadata.end()) summary.caption = at->second;
    summary.variants = file.variants();
    return summary;
  });
}

void read_caption_states(const fs::path& path, const CacheModel& model, int64_t variant, float* out) {
  in_context(path.string(), [&] {
    const CaptionFile file(path, model);
    const auto at = file.states.find(file.is_plain() ? -1 : variant);
    if (at == file.states.end()) fail(ErrorCode::BadFile, "it lacks the tensor ctx_vec_{}", variant);
    const std::vector<float> values = floats_of(*at->second);
    std::copy(values.begin(), values.end(), out);
  });
}

}  // namespace flux2
