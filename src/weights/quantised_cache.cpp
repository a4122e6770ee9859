#include "weights/quantised_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file_hash.h"
#include "base/folder_limit.h"
#include "base/sha256.h"
#include "base/start_thread.h"
#include "base/text.h"
#include "weights/safetensors_file.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kEnding = ".safetensors", kScalesEnding = ".scales";

bool is_hash(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// What a file holds, told without reading it: its SHA-256 where it is known (the hub's cache names its files by it, and
// checked models have it noted), else where it lies, its size and when it was changed.
std::string identity_of(const fs::path& file, const fs::path& hashes) {
  std::error_code failed;
  const fs::path real = fs::canonical(file, failed);
  if (failed) return file.string();
  if (real.parent_path().filename() == "blobs" && is_hash(real.filename().string())) return real.filename().string();
  if (std::string hash = remembered_hash(real, hashes); !hash.empty()) return hash;
  const auto size = fs::file_size(real, failed);
  const auto changed = fs::last_write_time(real, failed);
  return fmt::format("{} {} {}", real.string(), size, changed.time_since_epoch().count());
}

// Safetensors files know no blocks: those are stored as bytes.
DType stored_dtype(Quant quant) { return is_block_type(dtype_of(quant)) ? DType::U8 : dtype_of(quant); }
bool has_scales(Quant quant) { return !is_block_type(dtype_of(quant)); }

Shape stored_shape(const Shape& shape, Quant quant) { return {shape[0], bytes_for(dtype_of(quant), shape[1])}; }

bool holds(const WeightSource& source, const QuantisedNetwork& network) {
  return std::all_of(network.matrices.begin(), network.matrices.end(), [&](const auto& matrix) {
    const auto& [name, shape] = matrix;
    const StoredTensor *values = source.find(name), *scales = source.find(name + std::string(kScalesEnding));
    return values && values->dtype == stored_dtype(network.quant) && values->shape == stored_shape(shape, network.quant) &&
           (!has_scales(network.quant) || (scales && scales->dtype == DType::F32 && scales->shape == Shape{shape[0]}));
  });
}

std::shared_ptr<const WeightSource> open_entry(const fs::path& path) {
  SafetensorsFile file(path);
  auto metadata = file.metadata();
  return std::make_shared<const WeightSource>(std::move(file).take_tensors(), std::move(metadata), path.string());
}

void remove_entry(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

}  // namespace

int64_t QuantisedNetwork::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, shape] : matrices)
    sum += shape[0] * (bytes_for(dtype_of(quant), shape[1]) + (has_scales(quant) ? static_cast<int64_t>(sizeof(float)) : 0));
  return sum;
}

struct QuantisedCache::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::set<fs::path> writing;  // announced by keep(), not finished
  std::deque<std::function<void()>> waiting;
  std::atomic<bool> stop = false;
  bool end = false, announced = false;
  std::string failure;  // of a write; reported by a thread that the caller knows
  std::jthread writer;

  void run() {
    for (std::unique_lock lock(mutex);;) {
      changed.wait(lock, [&] { return end || !waiting.empty(); });
      if (waiting.empty()) return;
      const auto work = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }
};

QuantisedCache::QuantisedCache(QuantisedCacheOptions options, Log log)
    : options_(std::move(options)), log_(std::move(log)), state_(std::make_unique<State>()) {}

QuantisedCache::~QuantisedCache() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->end = true;
    if (std::uncaught_exceptions() > 0) state_->stop = true;
  }
  state_->changed.notify_all();
  if (state_->writer.joinable()) state_->writer.join();
  report_failure();
}

void QuantisedCache::report_failure() {
  const std::string failure = std::exchange(state_->failure, "");
  if (!failure.empty() && !state_->stop) log_.warn("the quantised weights are not cached: {}", failure);
}

fs::path QuantisedCache::path_of(const QuantisedNetwork& network) const {
  Sha256 hash;
  const auto add = [&](const std::string& text) { hash.add(std::as_bytes(std::span(text.data(), text.size() + 1))); };
  add(options_.version);
  add(network.part);
  add(std::string(name_of(network.quant)));
  for (const fs::path& file : network.files) add(identity_of(file, options_.hashes));
  for (const auto& [name, shape] : network.matrices) add(fmt::format("{} {}", name, shape));
  return options_.folder / (hash.hex() + std::string(kEnding));
}

std::shared_ptr<const WeightSource> QuantisedCache::find(const QuantisedNetwork& network) const {
  if (options_.folder.empty() || options_.limit <= 0) return nullptr;
  const fs::path path = path_of(network);
  std::error_code failed;
  if (!fs::exists(path, failed)) return nullptr;
  try {
    auto source = open_entry(path);
    if (holds(*source, network)) {
      fs::last_write_time(path, fs::file_time_type::clock::now(), failed);
      return source;
    }
  } catch (const Error&) {
    // Truncated, or not one of our files.
  }
  log_.warn("the cached weights {} are damaged; they are made again", path.string());
  remove_entry(path);
  return nullptr;
}

void QuantisedCache::keep(const QuantisedNetwork& network, std::vector<std::pair<std::string, Tensor>> matrices, bool wait) {
  const int64_t bytes = network.bytes();
  if (options_.folder.empty() || bytes < options_.smallest || bytes > options_.limit) return;
  const fs::path path = path_of(network);
  std::error_code failed;
  fs::create_directories(options_.folder, failed);
  remove_stale_temporaries(options_.folder);  // before the free space is measured
  const fs::space_info disk = fs::space(options_.folder, failed);
  if (failed) return;
  const auto stays_free =
      std::max(static_cast<double>(options_.keep_free), options_.keep_free_share * static_cast<double>(disk.capacity));
  if (static_cast<double>(disk.available) - static_cast<double>(bytes) < stays_free) {
    log_.debug("the quantised weights are not cached: {} of the disk must stay free",
               byte_text(static_cast<uint64_t>(stays_free)));
    return;
  }
  State& state = *state_;
  const auto write = [this, network, path, bytes, matrices = std::move(matrices)] {
    try {
      delete_oldest_files(options_.folder, kEnding, options_.limit - bytes);
      std::vector<SafetensorsWriter::Declared> declared;
      std::map<std::string, std::pair<const Tensor*, bool>> by_name;  // and whether its scales are meant
      for (const auto& [name, tensor] : matrices) {
        declared.push_back({name, stored_dtype(network.quant), stored_shape(tensor.shape(), network.quant)});
        by_name[name] = {&tensor, false};
        if (!has_scales(network.quant)) continue;
        declared.push_back({name + std::string(kScalesEnding), DType::F32, {tensor.dim(0)}});
        by_name[name + std::string(kScalesEnding)] = {&tensor, true};
      }
      SafetensorsWriter writer(path, std::move(declared),
                               {{"source", network.files.front().string()},
                                {"part", network.part},
                                {"quant", std::string(name_of(network.quant))},
                                {"version", options_.version}});
      for (const auto& t : writer.tensors()) {
        if (state_->stop) fail(ErrorCode::Cancelled, "interrupted");
        const auto& [tensor, scales] = by_name.at(t.name);
        const Tensor values = scales ? tensor->scales() : *tensor;
        writer.write(t.name, {static_cast<const std::byte*>(values.raw()), static_cast<size_t>(values.bytes())});
      }
      writer.commit();
    } catch (const std::exception& e) {  // also bad_alloc: the cache is not worth ending the program
      const std::lock_guard lock(state_->mutex);
      state_->failure = e.what();
    }
    const std::lock_guard lock(state_->mutex);
    state_->writing.erase(path);
    state_->changed.notify_all();
  };
  {
    const std::lock_guard lock(state.mutex);
    if (!state.writing.insert(path).second) return;  // another load of the same network has begun
    try {
      if (!std::exchange(state.announced, true))
        log_.warn(
            "quantised weights are kept in {} so that the next start is faster; the setting quant_cache limits their size ({})",
            options_.folder.string(), byte_text(static_cast<uint64_t>(options_.limit)));
      if (!wait && !state.writer.joinable()) state.writer = start_thread_if_possible([&state] { state.run(); });
      wait = wait || !state.writer.joinable();  // without a thread for it
      if (!wait) state.waiting.emplace_back(write);
    } catch (...) {
      state.writing.erase(path);  // finish() would wait for it
      throw;
    }
  }
  if (wait) write();
  else state.changed.notify_all();
}

void QuantisedCache::finish() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->writing.empty(); });
  report_failure();
}

Tensor cached_matrix(const WeightSource& cached, const std::string& name, const Shape& shape, Quant quant) {
  const StoredTensor* values = cached.find(name);
  require(values != nullptr, "the cached weights lack {}", name);
  const Tensor matrix = Tensor::on_host(values->bytes.data(), dtype_of(quant), shape, values->file);
  return has_scales(quant) ? matrix.with_scales(cached.open(name + std::string(kScalesEnding))) : matrix;
}

std::vector<QuantisedEntry> list_quantised(const fs::path& folder) {
  std::vector<QuantisedEntry> entries;
  std::error_code failed;
  for (fs::directory_iterator file(folder, failed), end; !failed && file != end; file.increment(failed)) {
    const std::string name = file->path().filename().string();
    if (name.size() != 64 + kEnding.size() || !name.ends_with(kEnding) || !is_hash(name.substr(0, 64))) continue;
    std::error_code gone;
    QuantisedEntry entry{.path = file->path(), .bytes = file->file_size(gone), .used = file->last_write_time(gone)};
    if (gone) continue;
    try {
      const auto metadata = SafetensorsFile(file->path()).metadata();
      const auto text = [&](const char* key) {
        const auto found = metadata.find(key);
        return found == metadata.end() ? std::string() : found->second;
      };
      entry.source = text("source"), entry.part = text("part"), entry.quant = text("quant"), entry.version = text("version");
    } catch (const Error&) {
      // Damaged; it is listed so that it can be deleted.
    }
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.used > b.used; });
  return entries;
}

}  // namespace flux2
