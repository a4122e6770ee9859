// The functions of NCCL that we call, each forwarding to the library once it is open.
#include <nccl.h>

#include <string>

#include "backend/cuda/late_library.h"
#include "backend/cuda/nccl_communicator.h"

namespace {

const flux2::LateLibrary& nccl_library() {
  static const flux2::LateLibrary nccl("libnccl.so." + std::to_string(NCCL_MAJOR));
  return nccl;
}

template <auto* Function>
auto late_nccl(const char* name) {
  static const auto function = reinterpret_cast<decltype(Function)>(nccl_library().symbol(name));
  return function;
}

}  // namespace

std::string flux2::nccl_problem() {
  return nccl_library().opens() ? std::string() : "libnccl.so." + std::to_string(NCCL_MAJOR) + " cannot be opened";
}

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return late_nccl<ncclGetVersion>("ncclGetVersion")(version); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return late_nccl<ncclGetUniqueId>("ncclGetUniqueId")(id); }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return late_nccl<ncclCommInitRankConfig>("ncclCommInitRankConfig")(comm, ranks, id, rank, config);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) { return late_nccl<ncclCommAbort>("ncclCommAbort")(comm); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* status) {
  return late_nccl<ncclCommGetAsyncError>("ncclCommGetAsyncError")(comm, status);
}

const char* ncclGetErrorString(ncclResult_t status) { return late_nccl<ncclGetErrorString>("ncclGetErrorString")(status); }

const char* ncclGetLastError(ncclComm_t comm) { return late_nccl<ncclGetLastError>("ncclGetLastError")(comm); }

ncclResult_t ncclGroupStart() { return late_nccl<ncclGroupStart>("ncclGroupStart")(); }

ncclResult_t ncclGroupEnd() { return late_nccl<ncclGroupEnd>("ncclGroupEnd")(); }

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm,
                           cudaStream_t stream) {
  return late_nccl<ncclAllReduce>("ncclAllReduce")(from, to, count, type, operation, comm, stream);
}

}  // extern "C"
