#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "train/data/ordered_workers.h"
#include "train/data/training_set.h"
#include "train/flow_inputs.h"

namespace flux2 {

// One batch of a run, ready for the network.
struct MicroStep {
  std::vector<FlowInputs> passes;  // none if another rank computes this batch too: it only fills up the last round
  double samples = 0;              // that all ranks together see in this micro-step; a batch that fills up counts once
};

// The batches of this rank from a place in a run on, in order. They are loaded and noised at least two ahead of the step, on
// threads of their own, also across the ends of epochs.
class BatchQueue {
 public:
  using Prepare = std::function<std::vector<FlowInputs>(LoadedBatch)>;  // called from several threads

  struct Place {
    int64_t epoch = 0, micro = 0;  // of the first batch; both from 0
    int64_t rank = 0, ranks = 1;
  };
  // The set must outlive the queue.
  BatchQueue(const TrainingSet& set, uint64_t seed, const Place& place, Prepare prepare);

  int64_t per_epoch() const { return per_epoch_; }

  // The next batch; epochs follow each other without end. What went wrong on a thread is thrown here, at the batch it concerns.
  MicroStep next() { return std::move(*workers_->next()); }

 private:
  struct Epoch {
    std::vector<BatchPlan> own;
    std::vector<double> samples;  // of all ranks, for each micro-step
  };
  std::shared_ptr<const Epoch> epoch(int64_t number);
  MicroStep load(int64_t micro);  // counted from the first epoch of the run

  const TrainingSet& set_;
  uint64_t seed_;
  Place place_;
  Prepare prepare_;
  int64_t per_epoch_;
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Epoch>> epochs_;  // at most two
  std::unique_ptr<OrderedWorkers<MicroStep>> workers_;      // last: its threads use the others
};

}  // namespace flux2
