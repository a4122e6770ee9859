#include "train/batch_queue.h"

#include <algorithm>
#include <thread>

namespace flux2 {

namespace {

// Drawing the noise of a 1024² sample takes a core much less time than a GPU's step. A very small model needs more threads: its
// batches have millions of values, and its step is short. On a machine with few cores the threads would only take time from it.
size_t reading_threads() { return std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 1, 8); }

}  // namespace

BatchQueue::BatchQueue(const TrainingSet& set, uint64_t seed, const Place& place, Prepare prepare)
    : set_(set),
      seed_(seed),
      place_(place),
      prepare_(std::move(prepare)),
      per_epoch_((set.batches_per_epoch() + place.ranks - 1) / place.ranks) {
  const int64_t first = place.epoch * per_epoch_ + std::min(place.micro, per_epoch_);
  constexpr size_t endless = size_t{1} << 62;
  workers_ = std::make_unique<OrderedWorkers<MicroStep>>(
      endless, reading_threads(), [this, first](size_t i) { return load(first + static_cast<int64_t>(i)); });
}

std::shared_ptr<const BatchQueue::Epoch> BatchQueue::epoch(int64_t number) {
  const std::lock_guard lock(mutex_);
  if (const auto kept = epochs_.find(number); kept != epochs_.end()) return kept->second;
  const std::vector<BatchPlan> all = set_.epoch(seed_, number);
  auto made = std::make_shared<Epoch>();
  made->own = deal(all, place_.rank, place_.ranks);
  made->samples.resize(made->own.size());
  for (size_t i = 0; i < all.size(); ++i)
    made->samples[i / static_cast<size_t>(place_.ranks)] += static_cast<double>(all[i].samples.size());
  if (epochs_.size() == 2) epochs_.erase(epochs_.begin());
  epochs_.emplace(number, made);
  return made;
}

MicroStep BatchQueue::load(int64_t micro) {
  const auto here = epoch(micro / per_epoch_);
  const auto i = static_cast<size_t>(micro % per_epoch_);
  const BatchPlan& plan = here->own[i];
  if (plan.repeated) return {{}, here->samples[i]};
  return {prepare_(set_.load(plan)), here->samples[i]};
}

}  // namespace flux2
