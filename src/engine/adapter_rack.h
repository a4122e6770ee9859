#pragma once

#include <list>
#include <memory>
#include <vector>

#include "hub/adapter_tools.h"

namespace flux2 {

enum class AdapterMode {
  Runtime,  // low-rank changes are computed beside the weights, which stay as they are; others are merged
  Merge,    // into the weights, in f32, rounded once
};

// The adapters of one transformer: the files that are open and what of them is in use.
class AdapterRack {
 public:
  AdapterRack(NamedWeights weights, const Flux2Config& config, AdapterMode mode, std::shared_ptr<Stream> stream,
              DType activations, Log log);

  // What shall be in use from now on. Opens files it does not know; when one cannot be used nothing changes. Returns whether it
  // differs from what was in use.
  bool choose(const std::vector<AdapterChoice>& choices);

  // Brings what was chosen into a network that was just loaded, and remembers that one.
  void put_into(const std::shared_ptr<Flux2Transformer>& network);

  // Whether the network must be loaded again because its weights themselves would change. If not, renew() is all it takes.
  bool needs_loading() const;
  void renew();

 private:
  struct Opened {
    AdapterChoice choice;
    std::filesystem::file_time_type time;  // a file that changed since is another one
    std::shared_ptr<const Adapter> adapter;
    std::shared_ptr<const AdapterPairs> pairs;  // of one that was used beside the weights
  };

  Opened& opened(const AdapterChoice& choice);
  std::vector<AdapterUse> merged() const;  // of those in use

  NamedWeights weights_;
  Flux2Config config_;
  AdapterMode mode_;
  std::shared_ptr<Stream> stream_;
  DType activations_;
  Log log_;
  std::list<Opened> opened_;  // used last at the end
  std::vector<AdapterUse> uses_, in_weights_;
  std::weak_ptr<Flux2Transformer> network_;
};

}  // namespace flux2
