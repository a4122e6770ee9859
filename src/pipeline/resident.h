#pragma once

#include <functional>
#include <memory>
#include <mutex>

namespace flux2 {

// A network that is in memory while it is needed: loaded at its first use, let go on request, loaded again when it is
// wanted again. Its geometry is known all the time. Copying copies a handle.
template <class Network>
class Resident {
 public:
  using Config = decltype(Network::config);
  using Loader = std::function<std::shared_ptr<const Network>()>;

  Resident() = default;  // stands for "none"
  Resident(const Config& config, Loader loader) : state_(std::make_shared<State>(config, std::move(loader))) {}

  explicit operator bool() const { return state_ != nullptr; }
  const Config& config() const { return state_->config; }

  // The loaded network. Whoever holds it keeps it in memory.
  std::shared_ptr<const Network> get() const {
    std::lock_guard lock(state_->mutex);
    if (!state_->network) state_->network = state_->loader();
    return state_->network;
  }
  bool is_loaded() const {
    std::lock_guard lock(state_->mutex);
    return state_->network != nullptr;
  }
  void let_go() const {
    std::lock_guard lock(state_->mutex);
    state_->network = nullptr;
  }

 private:
  struct State {
    State(const Config& c, Loader l) : config(c), loader(std::move(l)) {}
    const Config config;
    const Loader loader;
    std::mutex mutex;
    std::shared_ptr<const Network> network;
  };
  std::shared_ptr<State> state_;
};

}  // namespace flux2
