#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "tensor/communicator.h"

namespace flux2 {

// What a rank needs to meet the others for sums on its device.
struct StreamCommunicatorOptions {
  int rank = 0, size = 1;
  // Replaces these bytes on every rank with those of rank 0. Not called if there is one rank.
  std::function<void(std::span<std::byte> bytes)> share;
  // Called now and then while a rank waits for others. Throws if one of them has ended. May be empty.
  std::function<void()> check_ranks;
  double open_timeout_s = 300;  // until all ranks have opened it
  double sum_timeout_s = 7200;  // for a rank that is alive but does not take part
};

// Ranks whose tensors stay on their devices, one device a rank. Sums are enqueued on one stream: all_reduce() returns before they
// are done. All ranks get the same bits. Unlike other communicators the order of additions is the library's choice.
class StreamCommunicator : public Communicator {
 public:
  using Communicator::all_reduce;  // of an F32 or BF16 tensor, contiguous, on the stream
  // The same for many tensors, which must not overlap, as one operation. Every rank gives the same shapes in the same order.
  virtual void all_reduce(std::span<const Tensor> tensors) = 0;
  // Waits for the stream. If a rank has ended, it gives up the sums and throws instead of waiting forever; the communicator is
  // then of no use.
  virtual void wait() = 0;
  virtual std::string name() const = 0;  // "NCCL 2.28.9"
};

}  // namespace flux2
