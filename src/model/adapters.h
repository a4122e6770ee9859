#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "model/adapter_change.h"
#include "model/adapter_targets.h"
#include "model/flux2_transformer.h"

namespace flux2 {

// An adapter resolved against a model: what it changes where.
class Adapter {
 public:
  struct Change {
    AdapterTarget target;
    AdapterModule module;
  };

  // Throws Incompatible when it was made for another size or changes nothing of this model; layers of its own that the
  // model does not have are listed in unmatched().
  Adapter(AdapterFile file, const Flux2Config& config);

  const AdapterFile& file() const { return file_; }
  const std::vector<Change>& changes() const { return changes_; }
  const std::vector<std::string>& unmatched() const { return unmatched_; }

 private:
  AdapterFile file_;
  std::vector<Change> changes_;  // by weight
  std::vector<std::string> unmatched_;
};

struct AdapterUse {
  std::shared_ptr<const Adapter> adapter;
  double strength = 1.0;
};

enum class AdapterMode {
  Runtime,  // low-rank changes are computed beside the weights, which stay as they are; others are merged
  Merge,    // into the weights, in f32, rounded once
};

struct LowRankPair {
  HostMatrix down, up;  // [r, in], [out, r]
};

// All an adapter does to one weight [out, in] as one pair, the pieces of a fused layer joined: their downs one below the other,
// their ups each in its rows and columns. Empty where it does nothing, or something that has no low rank.
std::optional<LowRankPair> low_rank_change(const Adapter& adapter, const std::string& weight, int64_t out, int64_t in,
                                           ThreadPool& threads);

// W + Σ strength · change for one weight of the model; every change is computed from W itself.
HostMatrix merged_weight(const HostMatrix& weight, const std::string& name, const std::vector<AdapterUse>& uses,
                         ThreadPool& threads);

// The values of a canonical matrix, whatever it is stored as.
HostMatrix weight_values(const NamedWeights& weights, const std::string& name);

// Applies adapters to a network whose weights are those of `weights`, after loading and before any use. Adapters applied
// earlier are replaced.
void apply_adapters(Flux2Transformer& network, const NamedWeights& weights, const std::vector<AdapterUse>& uses, AdapterMode mode,
                    Stream& stream, DType activations);

}  // namespace flux2
