#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "model/adapter_change.h"
#include "model/adapter_targets.h"
#include "model/flux2_transformer.h"

namespace flux2 {

// An adapter matched to a model: the weights that it changes, and how.
class Adapter {
 public:
  struct Change {
    AdapterTarget target;
    AdapterModule module;
  };

  // Throws Incompatible if it was made for another size or changes nothing in this model. Its layers that the model does not have
  // are listed in unmatched(). `layers` is a regular expression for the names of the weights to change, found anywhere in them,
  // or ! and one for those to leave alone, or both joined by & ("double_blocks&!mlp"); empty: all. It is searched in the original
  // names
  // ("double_blocks.0.img_attn.qkv.weight"); if it matches none, in the keys of the file, then in the names of diffusers
  // ("single_transformer_blocks.0.attn.to_out.weight"). Throws
  // InvalidArgument when it leaves nothing.
  Adapter(AdapterFile file, const Flux2Config& config, const std::string& layers = {});

  const AdapterFile& file() const { return file_; }
  const std::vector<Change>& changes() const { return changes_; }
  const std::vector<std::string>& unmatched() const { return unmatched_; }

 private:
  AdapterFile file_;
  std::vector<Change> changes_;  // by weight
  std::vector<std::string> unmatched_;
};

// The changes of an adapter that are computed separately from the weights, on the device, by weight.
using AdapterPairs = std::map<std::string, Lora>;

struct AdapterUse {
  std::shared_ptr<const Adapter> adapter;
  double strength = 1.0;
  std::shared_ptr<const AdapterPairs> pairs = {};  // changes that are not among them are merged into the weights
};

struct LowRankPair {
  HostMatrix down, up;  // [r, in], [out, r]
};

// Everything an adapter does to one weight [out, in] as one pair of matrices. The pieces of a fused layer are joined: their
// `down` matrices are stacked, and each `up` goes to its rows and columns. Pieces that share a `down`, like those split from a
// fused layer, store it once. Empty if the adapter does not change the weight, or if the change is not low-rank.
std::optional<LowRankPair> low_rank_change(const Adapter& adapter, const std::string& weight, int64_t out, int64_t in);

// W + Σ strength · change for one weight [count, columns] of the model, in ranges of rows; every change is computed from W
// itself. Holds the matrices of the adapters and never more of the weight than is asked for.
class MergedRows {
 public:
  MergedRows(ReadRow weight, const Shape& shape, const std::string& name, const std::vector<AdapterUse>& uses);

  bool is_changed() const { return !changes_.empty(); }
  void rows(int64_t begin, int64_t end, float* out, ThreadPool& threads) const;

 private:
  struct Part {
    AdapterTarget target;
    AdapterChange change;
    float strength;

    ReadRow rows_of(const ReadRow& weight) const;
  };

  ReadRow weight_;
  int64_t columns_;
  std::vector<Part> changes_;
};

// The merged weight in memory: in F32 where the file has it, else in BF16.
Tensor merged_weight(const NamedWeights& weights, const std::string& name, const std::vector<AdapterUse>& uses,
                     ThreadPool& threads);

// The values of a canonical matrix, whatever it is stored as.
HostMatrix weight_values(const NamedWeights& weights, const std::string& name);

// Every low-rank change of an adapter, ready to be used with the weights of a network on that stream.
std::shared_ptr<const AdapterPairs> pairs_of(const Adapter& adapter, const Flux2Config& config, Stream& stream,
                                             DType activations);

// Bytes that an adapter takes in use: its pairs in `activations` and, for what is no pair or with `merge`, the weights it
// changes.
int64_t adapter_bytes(const std::shared_ptr<const Adapter>& adapter, const NamedWeights& weights, bool merge, DType activations);

// Bytes of the weights that merge_into() would change, as it stores them.
int64_t merged_weight_bytes(const NamedWeights& weights, const std::vector<AdapterUse>& uses);

// Whether some of its changes are not among its pairs.
bool is_merged(const AdapterUse& use);

// Attaches pairs to the layers, replacing those that were attached before. This is how strengths change between two images.
void put_beside(Flux2Transformer& network, const std::vector<AdapterUse>& uses);

// Merges the changes that are not among the pairs into the weights. The weights must be unchanged since they were loaded from
// `weights`.
void merge_into(Flux2Transformer& network, const NamedWeights& weights, const std::vector<AdapterUse>& uses, Stream& stream);

}  // namespace flux2
