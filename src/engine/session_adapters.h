#pragma once

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "hub/adapter_tools.h"
#include "pipeline/resident.h"

namespace flux2 {

enum class AdapterMode {
  Runtime,  // low-rank changes are computed separately from the weights, which do not change; other kinds are merged
  Merge,    // into copies of the weights, in f32, rounded once
};

// A transformer that several sessions share, with what one session needs to use it.
struct SharedTransformer {
  Resident<Flux2Transformer> network;
  std::shared_ptr<const NamedWeights> weights;  // the files it was loaded from
  // Makes a copy of the network usable on the session's stream. Empty: the network is usable as it is.
  std::function<void(Flux2Transformer& copy)> prepare;
};

// The adapters of one session: the files that are open and which of them are in use. The shared network is never changed. A
// session with adapters has its own copy of the network's layers, which are handles: the weights are shared, except for those
// that an adapter is merged into.
class SessionAdapters {
 public:
  SessionAdapters(SharedTransformer shared, AdapterMode mode, std::shared_ptr<Stream> stream, DType activations, Log log);

  // The adapters to use from now on. Opens files that are not open yet; if one cannot be used, nothing changes. Returns whether
  // this differs from what was in use.
  bool choose(const std::vector<AdapterChoice>& choices);

  // The transformer with the adapters in use: the shared network itself if it needs no change for this session.
  std::shared_ptr<const Flux2Transformer> network();

  // Frees the memory of the network. The next use of network() loads it again.
  void let_go() { merged_network_ = nullptr; }

  // Bytes of the weights that belong to this session alone because adapters are merged into them.
  int64_t merged_bytes() const { return merged_bytes_; }

 private:
  struct Opened {
    AdapterChoice choice;
    std::filesystem::file_time_type time;  // a file that was written since is opened again
    std::shared_ptr<const Adapter> adapter;
    std::shared_ptr<const AdapterPairs> pairs;  // once it was used beside the weights
  };

  Opened& opened(const AdapterChoice& choice);
  std::shared_ptr<const Flux2Transformer> with_merged_weights();

  SharedTransformer shared_;
  AdapterMode mode_;
  std::shared_ptr<Stream> stream_;
  DType activations_;
  Log log_;
  std::list<Opened> opened_;  // the one used last is at the end
  std::vector<AdapterUse> uses_;
  // The network without the adapters that are computed beside the weights, and what is merged into it.
  std::shared_ptr<const Flux2Transformer> merged_network_;
  std::vector<AdapterUse> merged_uses_;
  int64_t merged_bytes_ = 0;
};

}  // namespace flux2
