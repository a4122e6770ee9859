#include "backend/cuda/nccl_communicator.h"
#include "base/error.h"

// Built where NCCL is not installed.
namespace flux2 {

bool built_with_nccl() { return false; }
std::string nccl_problem() { return "this build has no NCCL"; }
std::string nccl_version() { return {}; }

std::shared_ptr<StreamCommunicator> open_nccl(std::shared_ptr<Stream>, const StreamCommunicatorOptions&) {
  fail(ErrorCode::Device, "{}", nccl_problem());
}

}  // namespace flux2
