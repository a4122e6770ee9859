#pragma once

#include <memory>
#include <vector>

namespace flux2 {

class Tensor;

// Communication between the ranks of one model. Every rank calls the same operations in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Replaces x on every rank with the sum over all ranks. It is added in rank order, so all ranks hold the same bits.
  virtual void all_reduce(const Tensor& x) = 0;
};

// Ranks that are threads of this process on host memory: for tests, and for one machine with several sockets.
std::vector<std::shared_ptr<Communicator>> local_communicators(int size);

}  // namespace flux2
