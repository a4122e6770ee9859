#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "backend/cuda/cuda_stream.h"

namespace flux2 {

// A captured step: the executable graph, the blocks of the pool it works in and the constants it uploads.
class CudaGraph final : public Graph {
 public:
  CudaGraph(std::shared_ptr<CudaStream> stream, cudaGraph_t graph, CudaPool::GraphId id,
            std::vector<std::shared_ptr<void>> uploads);
  ~CudaGraph() override;
  void replay() override;

 private:
  std::shared_ptr<CudaStream> stream_;
  CudaPool::GraphId id_;
  std::vector<std::shared_ptr<void>> uploads_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace flux2
