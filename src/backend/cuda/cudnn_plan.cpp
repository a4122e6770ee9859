#include "backend/cuda/cudnn_plan.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace flux2::cudnn {

namespace {

constexpr int64_t kAlignment = 16;  // bytes; what every tensor is promised to have

}  // namespace

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 1024> details{};
  cudnnGetLastErrorString(details.data(), details.size());
  fail(ErrorCode::Device, "{}: {} ({})", what, cudnnGetErrorString(status), trimmed(details.data()));
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &handle_), "describing work to cuDNN");
}

Descriptor::~Descriptor() {
  if (handle_) cudnnBackendDestroyDescriptor(handle_);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, int64_t value) { return set(name, CUDNN_TYPE_INT64, 1, &value); }

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
  return set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                            const void* values) {
  check_cudnn(cudnnBackendSetAttribute(handle_, name, type, count, values), "describing work to cuDNN");
  return *this;
}

Descriptor& Descriptor::finalise() {
  check_cudnn(cudnnBackendFinalize(handle_), "describing work to cuDNN");
  return *this;
}

const Descriptor& Operations::tensor(const TensorSpec& spec) {
  return helper(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, spec.number)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, spec.type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, spec.dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, spec.strides)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, spec.where == TensorSpec::Intermediate)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, spec.where == TensorSpec::HostValue)
      .finalise();
}

Descriptor& Operations::operation(cudnnBackendDescriptorType_t type) {
  Descriptor& made = helper(type);
  operations_.push_back(&made);
  return made;
}

Plan::Plan(cudnnHandle_t handle, Operations operations, int choice) : operations_(std::move(operations)) {
  build(handle, CUDNN_HEUR_MODE_A, choice);
  if (!plan_ && choice == 0) build(handle, CUDNN_HEUR_MODE_FALLBACK, choice);
  if (!plan_) fail(ErrorCode::Device, "cuDNN has no plan for this work");
}

void Plan::build(cudnnHandle_t handle, cudnnBackendHeurMode_t mode, int choice) {
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const Descriptor* operation : operations_.operations_) operations.push_back(operation->handle());
  Descriptor& graph = built_.emplace_back(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                          .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle)
                          .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                               static_cast<int64_t>(operations.size()), operations.data())
                          .finalise();
  Descriptor& suggestions = built_.emplace_back(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
                                .set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
                                .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode)
                                .finalise();
  int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(suggestions.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                       &count, nullptr),
              "asking cuDNN for a plan");
  std::deque<Descriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) handles.push_back(configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).handle());
  check_cudnn(cudnnBackendGetAttribute(suggestions.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                       &count, handles.data()),
              "asking cuDNN for a plan");

  for (int64_t i = 0; i < count; ++i) {
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle)
        .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configurations[static_cast<size_t>(i)]);
    if (cudnnBackendFinalize(plan.handle()) != CUDNN_STATUS_SUCCESS || choice-- > 0) continue;
    int64_t bytes = 0;
    check_cudnn(
        cudnnBackendGetAttribute(plan.handle(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, nullptr, &bytes),
        "asking cuDNN for a plan");
    built_.push_back(std::move(configurations[static_cast<size_t>(i)]));
    plan_ = &built_.emplace_back(std::move(plan));
    workspace_bytes_ = static_cast<size_t>(bytes);
    return;
  }
}

void Plan::run(cudnnHandle_t handle, std::span<const void* const> pointers, void* workspace) const {
  std::vector<int64_t> numbers;
  std::vector<const void*> present;
  for (size_t i = 0; i < pointers.size(); ++i)
    if (pointers[i]) {
      numbers.push_back(static_cast<int64_t>(i));
      present.push_back(pointers[i]);
    }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, numbers)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(present.size()), present.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
      .finalise();
  check_cudnn(cudnnBackendExecute(handle, plan_->handle(), pack.handle()), "running a plan of cuDNN");
}

}  // namespace flux2::cudnn
