#include "engine/weight_stream.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/start_thread.h"

namespace flux2 {

namespace {

constexpr size_t kPlaces = 2;
constexpr int64_t kAligned = 1024;  // elements; at least 512 bytes for every dtype

// One buffer: memory for each dtype, divided differently for every block that uses it.
class Place {
 public:
  // Makes it large enough for one more block.
  void reserve(const std::vector<WeightStream::Source>& block) {
    std::map<DType, int64_t> sizes;
    for (const WeightStream::Source& source : block)
      for (const Tensor* t : parts(source.host)) sizes[t->dtype()] += aligned(t->numel());
    for (const auto& [dtype, size] : sizes) elements_[dtype] = std::max(elements_[dtype], size);
  }
  void allocate(Stream& stream) {
    for (const auto& [dtype, size] : elements_) memory_[dtype] = Tensor::empty(stream, dtype, {size});
  }
  std::vector<Tensor> cut(const std::vector<WeightStream::Source>& block) const {
    std::map<DType, int64_t> used;
    const auto next = [&](const Tensor& host) {
      int64_t& start = used[host.dtype()];
      const Tensor t = memory_.at(host.dtype()).narrowed(0, start, host.numel()).reshaped(host.shape());
      start += aligned(host.numel());
      return t;
    };
    std::vector<Tensor> tensors;
    for (const auto& [host, place] : block) {
      const Tensor t = next(host);
      tensors.push_back(host.scales().defined() ? t.with_scales(next(host.scales())) : t);
    }
    return tensors;
  }

 private:
  static int64_t aligned(int64_t elements) { return (elements + kAligned - 1) / kAligned * kAligned; }
  static std::vector<const Tensor*> parts(const Tensor& t) {
    if (t.scales().defined()) return {&t, &t.scales()};
    return {&t};
  }

  std::map<DType, int64_t> elements_;
  std::map<DType, Tensor> memory_;
};

void copy_in(const Tensor& host, const Tensor& place, Stream& stream) {
  stream.upload(place.raw(), host.raw(), static_cast<size_t>(host.bytes()));
  if (host.scales().defined()) copy_in(host.scales(), place.scales(), stream);
}

}  // namespace

WeightStream::WeightStream(std::vector<std::vector<Source>> blocks, Stream& network, std::shared_ptr<Stream> copies)
    : copies_(std::move(copies)), position_(blocks.size(), -1) {
  std::array<Place, kPlaces> places;
  std::vector<size_t> order;  // the blocks that are streamed
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].empty()) continue;
    places[order.size() % kPlaces].reserve(blocks[i]);
    order.push_back(i);
  }
  slots_.resize(kPlaces);
  for (size_t i = 0; i < kPlaces; ++i) {
    places[i].allocate(network);
    slots_[i].released = network.mark();  // the memory may have been another tensor's until now
  }
  for (const size_t i : order) {
    const auto& block = blocks[i];
    position_[i] = static_cast<int64_t>(streamed_.size());
    const size_t slot = streamed_.size() % kPlaces;
    Streamed streamed{.sources = {}, .places = places[slot].cut(block), .slot = slot};
    for (size_t j = 0; j < block.size(); ++j) {
      check(block[j].host.is_contiguous(), "a streamed weight of shape {} is not contiguous", block[j].host.shape());
      streamed.sources.push_back(block[j].host);
      *block[j].place = streamed.places[j];
    }
    streamed_.push_back(std::move(streamed));
  }
  if (!streamed_.empty()) thread_ = start_thread("streaming weights", [this] { run(); });
}

WeightStream::~WeightStream() {
  end_thread();
  if (!failure_) copies_->wait();
}

void WeightStream::end_thread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WeightStream::expect_gradients(bool there_and_back) {
  if (there_and_back == there_and_back_ || streamed_.empty()) return;
  end_thread();
  if (failure_) std::rethrow_exception(failure_);
  there_and_back_ = there_and_back;
  stop_ = false;
  turns_taken_ = 0;
  for (Slot& slot : slots_) slot.turns = 0;
  for (Streamed& block : streamed_) block.ready_for = block.repeated_for = -1;
  thread_ = start_thread("streaming weights", [this] { run(); });
}

WeightStream::Streamed& WeightStream::at_turn(int64_t turn) {
  const size_t n = streamed_.size(), k = static_cast<size_t>(turn) % (there_and_back_ ? 2 * n : n);
  return streamed_[k < n ? k : 2 * n - 1 - k];
}

// Turn t copies the streamed block of that turn into its place once that is free. Where a pass turns around, the block is there
// already.
void WeightStream::run() {
  try {
    for (int64_t turn = 0;; ++turn) {
      Streamed& block = at_turn(turn);
      Slot& slot = slots_[block.slot];
      if (turn > 0 && &at_turn(turn - 1) == &block && streamed_.size() > 1) {
        {
          const std::lock_guard lock(mutex_);
          if (stop_) return;
          ++slot.turns;
          block.repeated_for = turn;
        }
        changed_.notify_all();
        continue;
      }
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || slot.turns == 0; });
        if (stop_) return;
        slot.turns = 1;
      }
      copies_->wait_for(slot.released);
      for (size_t i = 0; i < block.sources.size(); ++i) copy_in(block.sources[i], block.places[i], *copies_);
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
  changed_.wait(lock, [&] { return failure_ || at_turn(turn).ready_for == turn || at_turn(turn).repeated_for == turn; });
  if (failure_) std::rethrow_exception(failure_);
}

void WeightStream::release(Slot& slot, std::shared_ptr<void> mark) {
  slot.released = std::move(mark);
  slot.turns = std::max(slot.turns - 1, 0);
  changed_.notify_all();
}

void WeightStream::before(size_t index, Stream& stream) {
  if (position_[index] < 0) return;
  std::unique_lock lock(mutex_);
  // An aborted pass leaves blocks that were loaded but not used.
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
