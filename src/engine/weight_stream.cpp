#include "engine/weight_stream.h"

#include <algorithm>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr size_t kPlaces = 2;  // for blocks of one shape

bool same_shapes(const std::vector<Tensor>& slot, const std::vector<WeightStream::Source>& block) {
  return std::equal(slot.begin(), slot.end(), block.begin(), block.end(), [](const Tensor& t, const WeightStream::Source& s) {
    return t.dtype() == s.host.dtype() && t.shape() == s.host.shape() && t.scales().defined() == s.host.scales().defined();
  });
}

Tensor place_for(const Tensor& host, Stream& stream) {
  const Tensor t = Tensor::empty(stream, host.dtype(), host.shape());
  if (!host.scales().defined()) return t;
  return t.with_scales(Tensor::empty(stream, host.scales().dtype(), host.scales().shape()));
}

void copy_in(const Tensor& host, const Tensor& place, Stream& stream) {
  stream.upload(place.raw(), host.raw(), static_cast<size_t>(host.bytes()));
  if (host.scales().defined()) copy_in(host.scales(), place.scales(), stream);
}

}  // namespace

WeightStream::WeightStream(std::vector<std::vector<Source>> blocks, Stream& network, std::shared_ptr<Stream> copies)
    : copies_(std::move(copies)), position_(blocks.size(), -1) {
  // Blocks of one shape follow each other; they alternate between the places made for that shape.
  std::vector<std::vector<size_t>> kinds;  // slots of each shape
  std::vector<size_t> seen;                // blocks of each shape so far
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto& block = blocks[i];
    if (block.empty()) continue;
    size_t kind = 0;
    while (kind < kinds.size() && !same_shapes(slots_[kinds[kind][0]].tensors, block)) ++kind;
    if (kind == kinds.size()) kinds.emplace_back(), seen.push_back(0);
    if (kinds[kind].size() < kPlaces) {
      Slot slot;
      for (const Source& source : block) slot.tensors.push_back(place_for(source.host, network));
      slot.released = network.mark();  // the memory may have been another tensor's until now
      kinds[kind].push_back(slots_.size());
      slots_.push_back(std::move(slot));
    }
    Streamed streamed{.slot = kinds[kind][seen[kind]++ % kPlaces]};
    for (size_t j = 0; j < block.size(); ++j) {
      check(block[j].host.is_contiguous(), "a streamed weight of shape {} is not contiguous", block[j].host.shape());
      streamed.sources.push_back(block[j].host);
      *block[j].place = slots_[streamed.slot].tensors[j];
    }
    position_[i] = static_cast<int64_t>(streamed_.size());
    streamed_.push_back(std::move(streamed));
  }
  if (!streamed_.empty()) thread_ = std::thread([this] { run(); });
}

WeightStream::~WeightStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (!failure_) copies_->wait();
}

// Turn t copies streamed block t mod n into its place once that is free.
void WeightStream::run() {
  try {
    for (int64_t turn = 0;; ++turn) {
      Streamed& block = at_turn(turn);
      Slot& slot = slots_[block.slot];
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || slot.free; });
        if (stop_) return;
        slot.free = false;
      }
      copies_->wait_for(slot.released);
      for (size_t i = 0; i < block.sources.size(); ++i) copy_in(block.sources[i], slot.tensors[i], *copies_);
      const auto ready = copies_->mark();
      {
        const std::lock_guard lock(mutex_);
        block.ready = ready;
        block.ready_for = turn;
      }
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

void WeightStream::await(std::unique_lock<std::mutex>& lock, int64_t turn) {
  changed_.wait(lock, [&] { return failure_ || at_turn(turn).ready_for == turn; });
  if (failure_) std::rethrow_exception(failure_);
}

void WeightStream::release(Slot& slot, std::shared_ptr<void> mark) {
  slot.released = std::move(mark);
  slot.free = true;
  changed_.notify_all();
}

void WeightStream::before(size_t index, Stream& stream) {
  if (position_[index] < 0) return;
  std::unique_lock lock(mutex_);
  // A pass that was broken off left turns that nobody took.
  while (&at_turn(turns_taken_) != &streamed_[static_cast<size_t>(position_[index])]) {
    await(lock, turns_taken_);
    Slot& skipped = slots_[at_turn(turns_taken_++).slot];
    release(skipped, skipped.released);
  }
  await(lock, turns_taken_);
  const auto ready = at_turn(turns_taken_++).ready;
  lock.unlock();
  stream.wait_for(ready);
}

void WeightStream::after(size_t index, Stream& stream) {
  if (position_[index] < 0) return;
  // Called by a destructor: a failure is kept and thrown by the next before().
  std::shared_ptr<void> released;
  std::exception_ptr failure;
  try {
    released = stream.mark();
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (failure && !failure_) failure_ = failure;
  release(slots_[streamed_[static_cast<size_t>(position_[index])].slot], std::move(released));
}

}  // namespace flux2
