#include "base/error.h"

namespace flux2 {

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::Internal: return "Internal";
    case ErrorCode::InvalidArgument: return "InvalidArgument";
    case ErrorCode::NotFound: return "NotFound";
    case ErrorCode::BadFile: return "BadFile";
    case ErrorCode::Incompatible: return "Incompatible";
    case ErrorCode::OutOfMemory: return "OutOfMemory";
    case ErrorCode::Device: return "Device";
    case ErrorCode::CannotWrite: return "CannotWrite";
    case ErrorCode::Network: return "Network";
    case ErrorCode::Refused: return "Refused";
    case ErrorCode::Cancelled: return "Cancelled";
  }
  return "Unknown";
}

}  // namespace flux2
