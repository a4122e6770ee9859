#include "engine/adapter_rack.h"

#include <algorithm>

namespace flux2 {

namespace {

constexpr size_t kMostOpen = 8;  // besides those in use: going back to one of them is free

bool alike(const std::vector<AdapterUse>& a, const std::vector<AdapterUse>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const AdapterUse& x, const AdapterUse& y) { return x.adapter == y.adapter && x.strength == y.strength; });
}

}  // namespace

AdapterRack::AdapterRack(NamedWeights weights, const Flux2Config& config, AdapterMode mode, std::shared_ptr<Stream> stream,
                         DType activations, Log log)
    : weights_(std::move(weights)),
      config_(config),
      mode_(mode),
      stream_(std::move(stream)),
      activations_(activations),
      log_(std::move(log)) {}

AdapterRack::Opened& AdapterRack::opened(const AdapterChoice& choice) {
  std::error_code unknown;
  const auto time = std::filesystem::last_write_time(choice.path, unknown);
  const auto known = std::find_if(opened_.begin(), opened_.end(), [&](const Opened& o) {
    return o.choice.path == choice.path && o.choice.layers == choice.layers && o.time == time;
  });
  if (known == opened_.end()) opened_.push_back({choice, time, open_adapter(choice, config_, log_), nullptr});
  else opened_.splice(opened_.end(), opened_, known);
  return opened_.back();
}

bool AdapterRack::choose(const std::vector<AdapterChoice>& choices) {
  std::vector<AdapterUse> uses;
  for (const AdapterChoice& choice : choices) {
    Opened& o = opened(choice);
    if (choice.strength == 0) continue;
    if (mode_ == AdapterMode::Runtime && !o.pairs) o.pairs = pairs_of(*o.adapter, config_, *stream_, activations_);
    uses.push_back({o.adapter, choice.strength, o.pairs});
  }
  while (opened_.size() > choices.size() + kMostOpen) opened_.pop_front();
  if (alike(uses, uses_)) return false;
  uses_ = std::move(uses);
  return true;
}

std::vector<AdapterUse> AdapterRack::merged() const {
  std::vector<AdapterUse> list;
  std::copy_if(uses_.begin(), uses_.end(), std::back_inserter(list), is_merged);
  return list;
}

void AdapterRack::put_into(const std::shared_ptr<Flux2Transformer>& network) {
  in_weights_ = merged();
  merge_into(*network, weights_, in_weights_, *stream_);
  put_beside(*network, uses_);
  network_ = network;
}

bool AdapterRack::needs_loading() const { return !alike(merged(), in_weights_); }

void AdapterRack::renew() {
  if (const auto network = network_.lock()) put_beside(*network, uses_);
}

}  // namespace flux2
