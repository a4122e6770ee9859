#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "backend/cuda/cublas.h"
#include "backend/cuda/cuda_pool.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/op_timer.h"
#include "backend/cuda/staging.h"
#include "tensor/device.h"
#include "tensor/peak_meter.h"

namespace flux2 {

// A CUDA stream with its memory, its matrix products and its library kernels. One thread uses it at a time.
class CudaStream final : public Stream, public PeakMeter {
 public:
  CudaStream(std::shared_ptr<Device> device, int index, MatmulPlans& plans, std::shared_ptr<CudaBudget> budget);
  ~CudaStream() override;

  std::shared_ptr<void> allocate(size_t bytes) override { return pool_->allocate(bytes); }
  void upload(void* device_memory, const void* host, size_t bytes) override;
  void download(void* host, const void* device_memory, size_t bytes) override;
  void wait() override;
  std::shared_ptr<void> mark() override;
  void wait_for(const std::shared_ptr<void>& mark) override;
  // `work` runs twice: once for real, so that memory, kernels and plans exist, and once recorded. It must therefore
  // not add to its own inputs. What it uploads is kept as constants of the graph; it cannot download or wait.
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override;
  std::vector<OpTime> time_ops(const std::function<void()>& work) override;
  size_t peak_bytes() const override { return pool_->peak_bytes(); }
  size_t used_bytes() const override { return pool_->used_bytes(); }
  size_t restart_peak() override { return pool_->restart_peak(); }

  cudaStream_t handle() const { return handle_; }
  Cublas& cublas() { return *cublas_; }
  Cudnn& cudnn();  // opened at its first use: loading the library takes a while

  // Every kernel calls make_current before its launches and enqueued after each of them: a rejected launch throws immediately,
  // and a failure during execution is reported with the name of the last op that was enqueued.
  void make_current() const;
  void enqueued(const char* op, const OpCost& cost = {});

 private:
  friend class CudaGraph;

  const int index_;
  cudaStream_t handle_ = nullptr;
  std::shared_ptr<CudaBudget> budget_;  // of the device
  std::shared_ptr<CudaPool> pool_;
  std::unique_ptr<Cublas> cublas_;
  std::unique_ptr<Cudnn> cudnn_;
  Staging staging_;
  const char* last_op_ = "starting the stream";
  OpTimer* timer_ = nullptr;
  bool capturing_ = false;
  std::vector<std::shared_ptr<void>> captured_uploads_;
};

}  // namespace flux2
