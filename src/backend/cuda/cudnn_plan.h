#pragma once

#include <cudnn.h>

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

// cuDNN's graph interface: a computation is described as operations between tensors, and the library compiles it.
namespace flux2::cudnn {

void check_cudnn(cudnnStatus_t status, const char* what);

// One object of that interface: it is given attributes, then finalised. Refusals are thrown as Error(Device).
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();

  Descriptor& set(cudnnBackendAttributeName_t name, int64_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const int64_t> values);
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value);
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  // One value of any of the library's own types.
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return set(name, type, 1, &value);
  }
  Descriptor& finalise();

  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// A tensor of the computation. Its number is its place among the pointers that Plan::run is given; strides in elements.
struct TensorSpec {
  int64_t number;
  cudnnDataType_t type;
  std::vector<int64_t> dims, strides;
  enum Where { Memory, Intermediate, HostValue } where = Memory;
};

// The operations of one computation, with everything they refer to.
class Operations {
 public:
  const Descriptor& tensor(const TensorSpec& spec);
  Descriptor& helper(cudnnBackendDescriptorType_t type) { return parts_.emplace_back(type); }
  Descriptor& operation(cudnnBackendDescriptorType_t type);

 private:
  friend class Plan;
  std::deque<Descriptor> parts_;
  std::vector<const Descriptor*> operations_;
};

// Operations compiled for the GPU: of the library's suggestions that it can build, the one numbered `choice`. Throws if there are
// fewer.
class Plan {
 public:
  Plan(cudnnHandle_t handle, Operations operations, int choice = 0);

  size_t workspace_bytes() const { return workspace_bytes_; }
  // pointers[i] belongs to the tensor numbered i, null where there is none; a HostValue's points into host memory.
  void run(cudnnHandle_t handle, std::span<const void* const> pointers, void* workspace) const;

 private:
  void build(cudnnHandle_t handle, cudnnBackendHeurMode_t mode, int choice);

  Operations operations_;
  std::deque<Descriptor> built_;
  const Descriptor* plan_ = nullptr;
  size_t workspace_bytes_ = 0;
};

}  // namespace flux2::cudnn
