#pragma once

#include <memory>

#include "engine/engine.h"
#include "nn/parameter.h"

namespace flux2 {

struct ValueRange;

// Fills tensors on the device from one stock of normal values there: gigabytes of weights need not be made and sent. Matrices are
// kept as the engine keeps them.
class RandomWeights {
 public:
  RandomWeights(std::shared_ptr<Stream> stream, const Engine& engine,
                int64_t stock = 8 * 1999993);  // no multiple of a row length

  void operator()(const Parameter& p);

  void finish() const { stream_.wait(); }  // other streams may read what was made

 private:
  void fill(const Tensor& flat, const ValueRange& range);

  const std::shared_ptr<Stream> stream_owner_;
  Stream& stream_;
  const DType activations_;
  const Quant quant_;
  ThreadPool threads_;
  const int64_t size_;
  Tensor stock_;
  int64_t next_ = 0;
};

}  // namespace flux2
