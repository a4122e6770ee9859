// The functions of cuBLASLt that we call, each forwarding to the library once it is open.
#include <cublasLt.h>

#include <string>

#include "backend/cuda/late_library.h"

namespace {

template <auto* Function>
auto late(const char* name) {
  static const flux2::LateLibrary library("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
  static const auto function = reinterpret_cast<decltype(Function)>(library.symbol(name));
  return function;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return late<cublasLtCreate>("cublasLtCreate")(handle); }

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return late<cublasLtDestroy>("cublasLtDestroy")(handle); }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return late<cublasLtGetStatusString>("cublasLtGetStatusString")(status);
}

size_t cublasLtGetVersion() { return late<cublasLtGetVersion>("cublasLtGetVersion")(); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t stride) {
  return late<cublasLtMatrixLayoutCreate>("cublasLtMatrixLayoutCreate")(layout, type, rows, columns, stride);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  return late<cublasLtMatrixLayoutSetAttribute>("cublasLtMatrixLayoutSetAttribute")(layout, attribute, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout) {
  return late<cublasLtMatrixLayoutDestroy>("cublasLtMatrixLayoutDestroy")(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute, cudaDataType_t scale) {
  return late<cublasLtMatmulDescCreate>("cublasLtMatmulDescCreate")(description, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t description) {
  return late<cublasLtMatmulDescDestroy>("cublasLtMatmulDescDestroy")(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  return late<cublasLtMatmulDescSetAttribute>("cublasLtMatmulDescSetAttribute")(description, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return late<cublasLtMatmulPreferenceCreate>("cublasLtMatmulPreferenceCreate")(preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t preference) {
  return late<cublasLtMatmulPreferenceDestroy>("cublasLtMatmulPreferenceDestroy")(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  return late<cublasLtMatmulPreferenceSetAttribute>("cublasLtMatmulPreferenceSetAttribute")(preference, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  return late<cublasLtMatmulAlgoGetHeuristic>("cublasLtMatmulAlgoGetHeuristic")(handle, description, a, b, c, d, preference,
                                                                                wanted, results, found);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  return late<cublasLtMatmulAlgoCheck>("cublasLtMatmulAlgoCheck")(handle, description, a, b, c, d, algorithm, result);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  return late<cublasLtMatmul>("cublasLtMatmul")(handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d,
                                                d_layout, algorithm, workspace, workspace_bytes, stream);
}

}  // extern "C"
