#include "backend/cuda/cuda_graph.h"

#include <utility>

#include "backend/cuda/capture_gate.h"
#include "backend/cuda/cuda_error.h"

namespace flux2 {

CudaGraph::CudaGraph(std::shared_ptr<CudaStream> stream, cudaGraph_t graph, CudaPool::GraphId id,
                     std::vector<std::shared_ptr<void>> uploads)
    : stream_(std::move(stream)), id_(id), uploads_(std::move(uploads)) {
  check_cuda(cudaGraphInstantiate(&executable_, graph, 0), "instantiating a captured graph");
}

CudaGraph::~CudaGraph() {
  const OutsideCaptures here;
  cudaSetDevice(stream_->index_);
  cudaStreamSynchronize(stream_->handle_);  // a replay may still be running
  cudaGraphExecDestroy(executable_);
  stream_->pool_->release_graph(id_);
}

void CudaGraph::replay() {
  const OutsideCaptures here;
  stream_->make_current();
  check_cuda(cudaGraphLaunch(executable_, stream_->handle_), "replaying a captured graph");
  stream_->enqueued("captured graph");
}

std::unique_ptr<Graph> CudaStream::capture(const std::function<void()>& work) {
  work();
  wait();
  const CaptureAlone alone;
  const CudaPool::GraphId id = pool_->begin_capture();
  cudaGraph_t graph = nullptr;
  const auto stop = [&] {
    const cudaError_t status = cudaStreamEndCapture(handle_, &graph);
    capturing_ = false;
    pool_->end_capture();
    return status;
  };
  try {
    // Relaxed, so that a block that the first run did not leave behind can still be allocated.
    check_cuda(cudaStreamBeginCapture(handle_, cudaStreamCaptureModeRelaxed), "starting to capture");
    capturing_ = true;
    work();
    check_cuda(stop(), "capturing");
    auto result = std::make_unique<CudaGraph>(std::static_pointer_cast<CudaStream>(shared_from_this()), graph, id,
                                              std::exchange(captured_uploads_, {}));
    cudaGraphDestroy(graph);
    return result;
  } catch (...) {
    if (capturing_) stop();
    else pool_->end_capture();
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    captured_uploads_.clear();
    pool_->release_graph(id);
    throw;
  }
}

}  // namespace flux2
