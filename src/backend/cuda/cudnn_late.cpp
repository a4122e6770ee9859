// The functions of cuDNN that we call, each forwarding to the library once it is open.
#include <cudnn.h>

#include <string>

#include "backend/cuda/cudnn_state.h"
#include "backend/cuda/late_library.h"

namespace {

const flux2::LateLibrary& library() {
  static const flux2::LateLibrary cudnn("libcudnn.so." + std::to_string(CUDNN_MAJOR));
  return cudnn;
}

template <auto* Function>
auto late(const char* name) {
  static const auto function = reinterpret_cast<decltype(Function)>(library().symbol(name));
  return function;
}

}  // namespace

bool flux2::cudnn::is_installed() { return library().opens(); }

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return late<cudnnCreate>("cudnnCreate")(handle); }

size_t cudnnGetVersion() { return late<cudnnGetVersion>("cudnnGetVersion")(); }

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return late<cudnnDestroy>("cudnnDestroy")(handle); }

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return late<cudnnSetStream>("cudnnSetStream")(handle, stream);
}

const char* cudnnGetErrorString(cudnnStatus_t status) { return late<cudnnGetErrorString>("cudnnGetErrorString")(status); }

void cudnnGetLastErrorString(char* message, size_t bytes) {
  late<cudnnGetLastErrorString>("cudnnGetLastErrorString")(message, bytes);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return late<cudnnBackendCreateDescriptor>("cudnnBackendCreateDescriptor")(type, descriptor);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return late<cudnnBackendDestroyDescriptor>("cudnnBackendDestroyDescriptor")(descriptor);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return late<cudnnBackendFinalize>("cudnnBackendFinalize")(descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  return late<cudnnBackendSetAttribute>("cudnnBackendSetAttribute")(descriptor, name, type, count, values);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count, void* values) {
  return late<cudnnBackendGetAttribute>("cudnnBackendGetAttribute")(descriptor, name, type, wanted, count, values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return late<cudnnBackendExecute>("cudnnBackendExecute")(handle, plan, pack);
}

}  // extern "C"
