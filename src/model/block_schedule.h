#pragma once

#include <cstddef>
#include <memory>

#include "tensor/device.h"

namespace flux2 {

// Is called before and after each block of a network runs; blocks are numbered in the order they run. If not all weights are in
// memory at once, this loads the next block and releases the previous one.
class BlockSchedule {
 public:
  virtual ~BlockSchedule() = default;

  // When it returns, work enqueued on the stream may read the block's weights.
  virtual void before(size_t block, Stream& stream) = 0;
  // Work that is enqueued after this call does not read the block's weights in this pass.
  virtual void after(size_t block, Stream& stream) = 0;
  // Whether the memory of this block's weights holds another block's after after(). Its gradient then needs checkpoint(), which
  // takes a second turn for the block.
  virtual bool replaces_weights(size_t block) const = 0;
};

// Marks the time during which a block runs, by its lifetime. Does nothing without a schedule.
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
