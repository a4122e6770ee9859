#include "backend/cuda/cuda_stream.h"

#include <cstring>

#include "backend/cuda/capture_gate.h"
#include "backend/cuda/cuda_error.h"
#include "base/error.h"

namespace flux2 {

CudaStream::CudaStream(std::shared_ptr<Device> device, int index, MatmulPlans& plans, std::shared_ptr<CudaBudget> budget)
    : Stream(std::move(device)), index_(index), budget_(std::move(budget)) {
  const OutsideCaptures here;
  make_current();
  check_cuda(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "opening a stream");
  try {
    pool_ = std::make_shared<CudaPool>(index_, handle_, budget_);
    cublas_ = std::make_unique<Cublas>(handle_, plans);
  } catch (...) {
    cudaStreamDestroy(handle_);
    throw;
  }
}

CudaStream::~CudaStream() {
  const OutsideCaptures here;
  cudaSetDevice(index_);
  cudaStreamSynchronize(handle_);
  cudnn_.reset();
  cublas_.reset();
  cudaStreamDestroy(handle_);
}

void CudaStream::upload(void* device_memory, const void* host, size_t bytes) {
  if (bytes == 0) return;
  const OutsideCaptures here;
  make_current();
  if (capturing_) {
    auto constant = pinned_memory(bytes);
    std::memcpy(constant.get(), host, bytes);
    check_cuda(cudaMemcpyAsync(device_memory, constant.get(), bytes, cudaMemcpyHostToDevice, handle_), "upload");
    captured_uploads_.push_back(std::move(constant));
  } else {
    staging_.upload(device_memory, host, bytes, handle_);
  }
  last_op_ = "upload";
}

void CudaStream::download(void* host, const void* device_memory, size_t bytes) {
  if (capturing_) fail(ErrorCode::Internal, "download inside captured work");
  make_current();
  // The stream first, so that a failure of earlier work carries that work's name.
  wait();
  const OutsideCaptures here;
  if (bytes > 0) staging_.download(host, device_memory, bytes, handle_);
}

void CudaStream::wait() {
  if (capturing_) fail(ErrorCode::Internal, "wait inside captured work");
  make_current();
  check_cuda(cudaStreamSynchronize(handle_), last_op_);
}

std::shared_ptr<void> CudaStream::mark() {
  const OutsideCaptures here;
  make_current();
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "marking a point");
  std::shared_ptr<void> owned(event, [](void* e) {
    const OutsideCaptures released_here;
    cudaEventDestroy(static_cast<cudaEvent_t>(e));
  });
  check_cuda(cudaEventRecord(event, handle_), "marking a point");
  return owned;
}

void CudaStream::wait_for(const std::shared_ptr<void>& mark) {
  if (!mark) return;
  const OutsideCaptures here;
  make_current();
  check_cuda(cudaStreamWaitEvent(handle_, static_cast<cudaEvent_t>(mark.get()), 0), "waiting for another stream");
}

Cudnn& CudaStream::cudnn() {
  if (!cudnn_) cudnn_ = std::make_unique<Cudnn>(handle_, pool_);
  return *cudnn_;
}

void CudaStream::make_current() const { check_cuda(cudaSetDevice(index_), "choosing the GPU"); }

void CudaStream::enqueued(const char* op, const OpCost& cost) {
  last_op_ = op;
  check_cuda(cudaGetLastError(), op);
  if (timer_) timer_->mark(op, cost);
}

std::vector<OpTime> CudaStream::time_ops(const std::function<void()>& work) {
  make_current();
  OpTimer timer(handle_);
  timer_ = &timer;
  struct Leave {
    OpTimer*& timer;
    ~Leave() { timer = nullptr; }
  } leave{timer_};
  work();
  return timer.totals();
}

}  // namespace flux2
