#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "model/block_schedule.h"
#include "tensor/tensor.h"

namespace flux2 {

// Streams weights from the host while the network runs. Blocks alternate between two buffers on the device, each as large as the
// largest block. While one block computes, a separate thread copies the next one on a separate stream, in the order blocks run;
// after the last block it continues with the first block of the next pass. For training it turns around instead: gradients need
// the blocks once more in the opposite order. Addresses never change, so the network's tensors are set once.
//
// One pass runs at a time.
class WeightStream final : public BlockSchedule {
 public:
  // A matrix of a block in host memory, and the tensor of the network that shall hold it when the block's turn comes.
  struct Source {
    Tensor host;
    Tensor* place;
  };

  // blocks[i] are the matrices to stream of block i; empty for blocks that stay. The buffers belong to the stream on which the
  // network runs, so that work on a weight (such as dequantising it) is ordered with the rest. `copies` is another stream of the
  // device, used for nothing else.
  WeightStream(std::vector<std::vector<Source>> blocks, Stream& network, std::shared_ptr<Stream> copies);
  ~WeightStream() override;

  void before(size_t block, Stream& stream) override;
  void after(size_t block, Stream& stream) override;
  bool replaces_weights(size_t block) const override { return position_[block] >= 0; }

  // Whether each pass is followed by one in the opposite order. Only what is copied ahead depends on it. Must not be called
  // during a pass.
  void expect_gradients(bool there_and_back);

 private:
  struct Slot {
    int turns = 0;                   // of its contents that are not over; then it is free
    std::shared_ptr<void> released;  // the point after its last reader
  };
  // A streamed block: what it copies, where to, and the turn for which it is ready.
  struct Streamed {
    std::vector<Tensor> sources, places;
    size_t slot = 0;
    int64_t ready_for = -1, repeated_for = -1;
    std::shared_ptr<void> ready;
  };

  void run();
  void end_thread();
  Streamed& at_turn(int64_t turn);
  void await(std::unique_lock<std::mutex>& lock, int64_t turn);
  void release(Slot& slot, std::shared_ptr<void> mark);

  std::shared_ptr<Stream> copies_;
  std::vector<Slot> slots_;
  std::vector<Streamed> streamed_;  // in the order they run
  std::vector<int64_t> position_;   // of a block among the streamed ones; −1 for those that stay
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t turns_taken_ = 0;  // how many times a streamed block was asked for
  bool there_and_back_ = false;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace flux2
