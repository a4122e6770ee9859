#include "backend/cuda/nccl_communicator.h"

#include <nccl.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "backend/cuda/capture_gate.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"
#include "base/error.h"
#include "tensor/tensor.h"

namespace flux2 {

namespace {

using NcclClock = std::chrono::steady_clock;

[[noreturn]] void nccl_failed(ncclResult_t status, ncclComm_t comm, const std::string& what) {
  std::string details = ncclGetLastError(comm);
  while (!details.empty() && (details.back() == '\n' || details.back() == ' ')) details.pop_back();
  fail(ErrorCode::Device, "{}: NCCL reports {}{}", what, ncclGetErrorString(status), details.empty() ? "" : " (" + details + ")");
}

ncclDataType_t nccl_type(DType dtype) {
  if (dtype == DType::F32) return ncclFloat32;
  if (dtype == DType::BF16) return ncclBfloat16;
  fail(ErrorCode::Internal, "ranks on GPUs cannot add values of type {}", name_of(dtype));
}

// Waits in short naps, asks the watch for lost ranks ten times a second, and ends at a time limit.
class PatientWait {
 public:
  PatientWait(const std::function<void()>& check_ranks, double seconds, std::string what)
      : check_ranks_(check_ranks), seconds_(seconds), what_(std::move(what)) {}

  void nap() {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    const auto now = NcclClock::now();
    if (now - checked_ < std::chrono::milliseconds(100)) return;
    checked_ = now;
    if (check_ranks_) check_ranks_();
    if (std::chrono::duration<double>(now - begun_).count() > seconds_)
      fail(ErrorCode::Device, "{}: the other ranks did not take part within {:.0f} seconds", what_, seconds_);
  }

 private:
  const std::function<void()>& check_ranks_;
  double seconds_;
  std::string what_;
  NcclClock::time_point begun_ = NcclClock::now(), checked_ = begun_;
};

// The communicator is non-blocking: calls return while NCCL works, so that a rank that ends cannot stop the others forever.
class NcclCommunicator final : public StreamCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<Stream> stream, const StreamCommunicatorOptions& options)
      : stream_(std::dynamic_pointer_cast<CudaStream>(std::move(stream))), options_(options) {
    require(stream_ != nullptr, "NCCL needs a stream of a GPU");
    check(options.size >= 1 && options.rank >= 0 && options.rank < options.size, "rank {} of {} cannot exist", options.rank,
          options.size);
    ncclUniqueId id = shared_id();
    const OutsideCaptures here;
    stream_->make_current();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const std::string what = fmt::format("connecting the GPU of rank {} of {}", options_.rank, options_.size);
    settle(ncclCommInitRankConfig(&comm_, options_.size, id, options_.rank, &config), what, options_.open_timeout_s);
  }

  // Abort, not destroy: this never waits for ranks that may have ended.
  ~NcclCommunicator() override { abort(); }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string name() const override { return "NCCL " + nccl_version(); }

  void all_reduce(const Tensor& x) override { all_reduce(std::span(&x, 1)); }

  void all_reduce(std::span<const Tensor> tensors) override {
    require(comm_ != nullptr, "sums over ranks after they were given up");
    double bytes = 0;
    for (const Tensor& x : tensors) {
      require(!x.on_host_only() && &x.stream() == stream_.get() && x.is_contiguous(),
              "ranks on GPUs add contiguous tensors of their own stream only");
      nccl_type(x.dtype());
      bytes += static_cast<double>(x.bytes());
    }
    const OutsideCaptures here;
    stream_->make_current();
    const std::string what = fmt::format("adding {} tensors over {} ranks", tensors.size(), options_.size);
    settle(ncclGroupStart(), what, options_.sum_timeout_s);
    ncclResult_t status = ncclSuccess;
    for (const Tensor& x : tensors) {
      if (x.numel() == 0) continue;
      status = ncclAllReduce(x.raw(), x.raw(), static_cast<size_t>(x.numel()), nccl_type(x.dtype()), ncclSum, comm_,
                             stream_->handle());
      if (status != ncclSuccess && status != ncclInProgress) break;
    }
    const ncclResult_t end = ncclGroupEnd();  // also after a failure: an open group would swallow later calls
    const bool failed = status != ncclSuccess && status != ncclInProgress;
    settle(failed ? status : end, what, options_.sum_timeout_s);
    stream_->enqueued("sum over ranks", {.flop = 0, .bytes = 2 * bytes});
  }

  void wait() override {
    require(comm_ != nullptr, "waiting for sums over ranks that were given up");
    PatientWait patience(options_.check_ranks, options_.sum_timeout_s, "waiting for a sum over ranks");
    try {
      for (;;) {
        {
          const OutsideCaptures here;
          stream_->make_current();
          const cudaError_t status = cudaStreamQuery(stream_->handle());
          if (status == cudaSuccess) break;
          if (status != cudaErrorNotReady) check_cuda(status, "waiting for a sum over ranks");
          cudaGetLastError();  // "not ready" would otherwise be taken for the failure of the next launch
        }
        ncclResult_t status = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &status);
        if (asked != ncclSuccess) nccl_failed(asked, comm_, "asking for the state of the ranks");
        if (status != ncclSuccess && status != ncclInProgress) nccl_failed(status, comm_, "a sum over ranks");
        patience.nap();
      }
    } catch (...) {
      abort();  // ends the kernels that wait for other GPUs, so that the stream can be used and closed
      throw;
    }
    stream_->wait();
  }

 private:
  // Made by rank 0. The first byte says whether that worked: a rank 0 that only threw would leave the others waiting.
  ncclUniqueId shared_id() {
    ncclUniqueId id{};
    std::array<std::byte, 1 + sizeof id> message{};
    ncclResult_t status = ncclSuccess;
    if (options_.rank == 0) {
      const OutsideCaptures here;
      stream_->make_current();
      status = ncclGetUniqueId(&id);
      message[0] = std::byte{status == ncclSuccess};
      std::memcpy(message.data() + 1, &id, sizeof id);
    }
    if (options_.size > 1) options_.share(message);
    if (status != ncclSuccess) nccl_failed(status, nullptr, "making the id of the group of GPUs");
    if (message[0] == std::byte{0}) fail(ErrorCode::Device, "rank 0 could not make the id of the group of GPUs");
    std::memcpy(&id, message.data() + 1, sizeof id);
    return id;
  }

  // Waits until a call is done. If it failed, or a rank has ended, the sums are given up and this throws.
  void settle(ncclResult_t status, const std::string& what, double seconds) {
    PatientWait patience(options_.check_ranks, seconds, what);
    try {
      while (status == ncclInProgress) {
        patience.nap();
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &status);
        if (asked != ncclSuccess) nccl_failed(asked, comm_, what);
      }
      if (status != ncclSuccess) nccl_failed(status, comm_, what);
    } catch (...) {
      abort();
      throw;
    }
  }

  void abort() noexcept {
    if (!comm_) return;
    const OutsideCaptures here;
    try {
      stream_->make_current();
      ncclCommAbort(comm_);
    } catch (const Error&) {  // the GPU is lost, and everything on it
    }
    comm_ = nullptr;
  }

  std::shared_ptr<CudaStream> stream_;
  StreamCommunicatorOptions options_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

bool built_with_nccl() { return true; }

std::string nccl_version() {
  int code = 0;
  if (const ncclResult_t status = ncclGetVersion(&code); status != ncclSuccess)
    nccl_failed(status, nullptr, "asking for the version of NCCL");
  const int major_unit = code < 10000 ? 1000 : 10000;  // 2.8 and older: 2803
  return fmt::format("{}.{}.{}", code / major_unit, code % major_unit / 100, code % 100);
}

std::shared_ptr<StreamCommunicator> open_nccl(std::shared_ptr<Stream> stream, const StreamCommunicatorOptions& options) {
  return std::make_shared<NcclCommunicator>(std::move(stream), options);
}

}  // namespace flux2
