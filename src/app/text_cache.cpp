#include "app/text_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/file_hash.h"
#include "base/folder_limit.h"
#include "base/path_exists.h"
#include "base/sha256.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTensor = "text.embeddings";  // as `embeddings` of a request takes it

// The hash of a file, or of all files in a folder.
std::string hash_of(const fs::path& path, const fs::path& hashes) {
  constexpr uint64_t kAnySize = std::numeric_limits<uint64_t>::max();
  if (!fs::is_directory(path)) return remembered_hash(path, hashes, kAnySize);
  std::vector<std::string> parts;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file())
      parts.push_back(entry.path().filename().string() + " " + remembered_hash(entry.path(), hashes, kAnySize));
  std::sort(parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(parts, "\n"));
}

}  // namespace

fs::path text_cache_folder(const AppContext& context) { return data_path(context.environment, "cache/text"); }

TextCache::TextCache(fs::path folder, int64_t limit_bytes, const ModelFiles& model, const std::string& how,
                     const fs::path& hashes)
    : folder_(std::move(folder)),
      limit_(limit_bytes),
      identity_(fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", hash_of(model.text_encoder, hashes), hash_of(model.tokenizer, hashes),
                            fmt::join(model.defaults.text_layers, ","), model.defaults.text_length, model.defaults.system_message,
                            how)) {}

fs::path TextCache::file_of(const std::string& prompt) const {
  return folder_ /
         (Sha256().add(std::as_bytes(std::span(identity_))).add(std::as_bytes(std::span(prompt))).hex() + ".safetensors");
}

bool TextCache::bring(Session& session, const std::string& prompt) const {
  if (session.prompt_cache.contains(prompt)) return true;
  const fs::path path = file_of(prompt);
  if (!path_exists(path)) return false;
  try {
    const auto file = open_weights(path);
    if (!file->find(kTensor)) return false;
    const Tensor stored = file->open(kTensor);
    if (stored.shape() != Shape{session.models.text_length, session.models.transformer.config().text_width}) return false;
    session.prompt_cache.add(
        prompt, Tensor::from<float>(*session.stream, session.activations, {1, stored.dim(0), stored.dim(1)}, stored.to_floats()));
    fs::last_write_time(path, fs::file_time_type::clock::now());  // used last
    session.log.info("text states of the prompt: {}", path.string());
    return true;
  } catch (const Error& e) {
    session.log.warn("{}: the stored text states are not used", e.what());
  } catch (const fs::filesystem_error&) {
    return session.prompt_cache.contains(prompt);  // the time could not be changed
  }
  return false;
}

void TextCache::keep(Session& session, const std::string& prompt) const {
  const Tensor states = session.prompt_cache.find(prompt);
  const fs::path path = file_of(prompt);
  if (!states.defined() || path_exists(path)) return;
  try {
    fs::create_directories(folder_);
    const std::vector<float> values = states.to_floats();
    save_tensors(path, {{kTensor, Tensor::host_copy(values.data(), DType::F32, {states.dim(1), states.dim(2)})}});
    delete_oldest_files(folder_, ".safetensors", limit_);
  } catch (const std::exception& e) {
    session.log.warn("text states cannot be stored: {}", e.what());
  }
}

}  // namespace flux2
