#pragma once

#include <functional>
#include <memory>
#include <mutex>

namespace flux2 {

// A network that is in memory only while it is needed: loaded at its first use, unloaded on request, and loaded again at the next
// use. Its geometry is always known. Copying copies a handle.
template <class Network>
class Resident {
 public:
  using Config = decltype(Network::config);
  using Loader = std::function<std::shared_ptr<const Network>()>;

  Resident() = default;  // stands for "none"
  // `also_let_go` is called by let_go(); used by a network that wraps another one.
  Resident(const Config& config, Loader loader, std::function<void()> also_let_go = {})
      : state_(std::make_shared<State>(config, std::move(loader), std::move(also_let_go))) {}

  explicit operator bool() const { return state_ != nullptr; }
  const Config& config() const { return state_->config; }
  const void* identity() const { return state_.get(); }  // the same for copies, and after unloading and loading again

  // The loaded network. It stays in memory as long as the result is held.
  std::shared_ptr<const Network> get() const {
    std::lock_guard lock(state_->mutex);
    if (!state_->network) state_->network = state_->last.lock();  // unloaded here, but still in use elsewhere
    if (!state_->network) state_->network = state_->loader();
    state_->last = state_->network;
    return state_->network;
  }
  bool is_loaded() const {
    std::lock_guard lock(state_->mutex);
    return state_->network != nullptr;
  }
  // Unloads the network. The next use loads it again, even if someone still holds the old one.
  void renew() const {
    std::lock_guard lock(state_->mutex);
    state_->network = nullptr;
    state_->last.reset();
  }
  void let_go() const {
    std::lock_guard lock(state_->mutex);
    state_->network = nullptr;
    if (state_->also_let_go) state_->also_let_go();
  }

 private:
  struct State {
    State(const Config& c, Loader l, std::function<void()> also)
        : config(c), loader(std::move(l)), also_let_go(std::move(also)) {}
    const Config config;
    const Loader loader;
    const std::function<void()> also_let_go;
    std::mutex mutex;
    std::shared_ptr<const Network> network;
    std::weak_ptr<const Network> last;
  };
  std::shared_ptr<State> state_;
};

}  // namespace flux2
