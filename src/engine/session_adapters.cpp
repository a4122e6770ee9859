#include "engine/session_adapters.h"

#include <algorithm>

namespace flux2 {

namespace {

constexpr size_t kMostOpen = 8;  // files kept open besides those in use: going back to one of them costs nothing

bool alike(const std::vector<AdapterUse>& a, const std::vector<AdapterUse>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const AdapterUse& x, const AdapterUse& y) { return x.adapter == y.adapter && x.strength == y.strength; });
}

std::vector<AdapterUse> merged_ones(const std::vector<AdapterUse>& uses) {
  std::vector<AdapterUse> list;
  std::copy_if(uses.begin(), uses.end(), std::back_inserter(list), is_merged);
  return list;
}

}  // namespace

SessionAdapters::SessionAdapters(SharedTransformer shared, AdapterMode mode, std::shared_ptr<Stream> stream, DType activations,
                                 Log log)
    : shared_(std::move(shared)), mode_(mode), stream_(std::move(stream)), activations_(activations), log_(std::move(log)) {}

SessionAdapters::Opened& SessionAdapters::opened(const AdapterChoice& choice) {
  std::error_code unknown;
  const auto time = std::filesystem::last_write_time(choice.path, unknown);
  const auto known = std::find_if(opened_.begin(), opened_.end(), [&](const Opened& o) {
    return o.choice.path == choice.path && o.choice.layers == choice.layers && o.time == time;
  });
  if (known == opened_.end()) opened_.push_back({choice, time, open_adapter(choice, shared_.network.config(), log_), nullptr});
  else opened_.splice(opened_.end(), opened_, known);
  return opened_.back();
}

bool SessionAdapters::choose(const std::vector<AdapterChoice>& choices) {
  std::vector<AdapterUse> uses;
  for (const AdapterChoice& choice : choices) {
    Opened& o = opened(choice);
    if (choice.strength == 0) continue;
    if (mode_ == AdapterMode::Runtime && !o.pairs)
      o.pairs = pairs_of(*o.adapter, shared_.network.config(), *stream_, activations_);
    uses.push_back({o.adapter, choice.strength, o.pairs});
  }
  while (opened_.size() > choices.size() + kMostOpen) opened_.pop_front();
  if (alike(uses, uses_)) return false;
  uses_ = std::move(uses);
  return true;
}

std::shared_ptr<const Flux2Transformer> SessionAdapters::with_merged_weights() {
  auto merged = merged_ones(uses_);
  if (merged_network_ && alike(merged, merged_uses_)) return merged_network_;
  merged_network_ = nullptr;  // before other copies of weights take memory
  merged_bytes_ = 0;
  auto network = shared_.network.get();
  if (shared_.prepare || !merged.empty()) {
    const int64_t bytes = merged.empty() ? 0 : merged_weight_bytes(*shared_.weights, merged);
    // Where the copies would not fit beside the weights they replace, those go first, unless another session holds them.
    if (!stream_->device().is_host() && bytes > stream_->device().memory().available) shared_.network.let_go();
    auto copy = std::make_shared<Flux2Transformer>(*network);
    network = nullptr;
    if (!merged.empty()) merge_into(*copy, *shared_.weights, merged, *stream_);
    if (shared_.prepare) shared_.prepare(*copy);
    network = std::move(copy);
    merged_bytes_ = bytes;
  }
  merged_uses_ = std::move(merged);
  return merged_network_ = network;
}

std::shared_ptr<const Flux2Transformer> SessionAdapters::network() {
  const auto network = with_merged_weights();
  if (std::none_of(uses_.begin(), uses_.end(), [](const AdapterUse& use) { return use.pairs != nullptr; })) return network;
  auto copy = std::make_shared<Flux2Transformer>(*network);
  put_beside(*copy, uses_);
  return copy;
}

}  // namespace flux2
