#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "weights/quantise.h"
#include "weights/weight_source.h"

namespace flux2 {

struct QuantisedCacheOptions {
  std::filesystem::path folder;          // empty: nothing is cached
  std::filesystem::path hashes;          // see remembered_hash() in base/file_hash.h
  std::string version;                   // of the program; entries of other versions are not used
  int64_t limit = int64_t{32} << 30;     // bytes of all entries; the ones used longest ago are deleted
  int64_t smallest = 0;                  // networks of fewer bytes are not cached: quantising them takes no time
  int64_t keep_free = int64_t{1} << 30;  // bytes of the disk that stay free
  double keep_free_share = 0;            // and the share of it
};

// Which network: its files, and the matrices that are quantised. Two networks with the same values here have the same bytes.
struct QuantisedNetwork {
  std::vector<std::filesystem::path> files;
  std::string part;  // "transformer"
  Quant quant = Quant::None;
  std::vector<std::pair<std::string, Shape>> matrices;

  int64_t bytes() const;  // of the quantised matrices
};

// Weights that were quantised while loading, on disk for the next start: one file per network, named by the hash of what
// decides its bytes. Files are complete or absent; a damaged one is deleted and made again. Any thread may call it.
class QuantisedCache {
 public:
  QuantisedCache(QuantisedCacheOptions options, Log log);
  QuantisedCache(const QuantisedCache&) = delete;
  QuantisedCache& operator=(const QuantisedCache&) = delete;
  // Waits until what keep() began is written. After an exception it stops instead, and leaves nothing half-written.
  ~QuantisedCache();

  // The file of a network in the cache. It may not exist.
  std::filesystem::path path_of(const QuantisedNetwork& network) const;

  // The cached network, mapped; null when it is not there. The entry counts as used now.
  std::shared_ptr<const WeightSource> find(const QuantisedNetwork& network) const;

  // Writes a network's matrices in the background, or before it returns with `wait`. Does nothing where the limits do not allow
  // it. A failed write is a warning.
  void keep(const QuantisedNetwork& network, std::vector<std::pair<std::string, Tensor>> matrices, bool wait);

  void finish();  // waits for what is being written

 private:
  void report_failure();

  struct State;
  const QuantisedCacheOptions options_;
  const Log log_;
  std::unique_ptr<State> state_;
};

// A matrix of a cached network, as quantise() made it. It keeps the file mapped.
Tensor cached_matrix(const WeightSource& cached, const std::string& name, const Shape& shape, Quant quant);

struct QuantisedEntry {
  std::filesystem::path path;
  std::string source, part, quant, version;  // `source` is the file the weights came from; empty for a damaged entry
  uint64_t bytes = 0;
  std::filesystem::file_time_type used;
};

// The entries of a cache folder, used last first.
std::vector<QuantisedEntry> list_quantised(const std::filesystem::path& folder);

}  // namespace flux2
