#pragma once

#include <cstddef>
#include <memory>

#include "tensor/device.h"

namespace flux2 {

// Told before and after each block of a network runs, blocks numbered in the order they run. Where not all of their weights
// are in memory at once, this is what brings the next ones and lets the last ones go.
class BlockSchedule {
 public:
  virtual ~BlockSchedule() = default;

  // When it returns, work enqueued on the stream may read the block's weights.
  virtual void before(size_t block, Stream& stream) = 0;
  // What is enqueued on the stream now is the last of this pass to read them.
  virtual void after(size_t block, Stream& stream) = 0;
};

// A block's turn, for as long as this exists. No schedule, nothing to do.
class BlockTurn {
 public:
  BlockTurn(const std::shared_ptr<BlockSchedule>& schedule, size_t block, Stream& stream)
      : schedule_(schedule.get()), block_(block), stream_(stream) {
    if (schedule_) schedule_->before(block_, stream_);
  }
  BlockTurn(const BlockTurn&) = delete;
  BlockTurn& operator=(const BlockTurn&) = delete;
  ~BlockTurn() {
    if (schedule_) schedule_->after(block_, stream_);
  }

 private:
  BlockSchedule* schedule_;
  size_t block_;
  Stream& stream_;
};

}  // namespace flux2
