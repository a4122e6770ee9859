#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

struct Session;

// Work of a model recorded for inputs of certain shapes, with the tensors it reads and the one it writes.
struct CapturedWork {
  std::shared_ptr<const void> model;
  std::string variant;
  std::vector<Tensor> inputs;  // undefined where the work got none
  Tensor output;
  std::unique_ptr<Graph> graph;
};

// A network whose blocks are streamed while it runs cannot be replayed.
template <class Network>
bool can_capture(const Network& network) {
  return network.schedule == nullptr;
}

// Whether captured() records work in this session. Work that is recorded cannot be stopped in the middle.
bool captures(const Session& session);

// work(inputs), a tensor of this dtype and shape. On devices that prefer graphs, it is captured at its first use with this model
// and these shapes and replayed later, so it must depend on nothing else and have no side effects. `variant` names everything
// else that it depends on. The next use overwrites the result.
Tensor captured(Session& session, const std::shared_ptr<const void>& model, const std::vector<Tensor>& inputs, DType dtype,
                const Shape& shape, const std::function<Tensor(std::span<const Tensor> inputs)>& work,
                const std::string& variant = {});

}  // namespace flux2
