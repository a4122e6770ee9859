#include "server/jobs/job_error.h"

#include <new>

#include "server/http/errors.h"

namespace flux2 {

const char* job_error_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::Internal: return "internal";
    case ErrorCode::InvalidArgument: return "invalid_request";
    case ErrorCode::NotFound: return "model_not_found";
    case ErrorCode::BadFile: return "damaged_file";
    case ErrorCode::Incompatible: return "incompatible";
    case ErrorCode::OutOfMemory: return "out_of_memory";
    case ErrorCode::Device: return "device_failure";
    case ErrorCode::CannotWrite: return "disk_full";
    case ErrorCode::Network: return "network";
    case ErrorCode::Refused: return "content_policy_violation";
    case ErrorCode::Cancelled: return "interrupted";
  }
  return "internal";
}

JobError job_error_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    return {job_error_code(e.code()), e.what(), e.hint().plain(), e.code() == ErrorCode::Cancelled};
  } catch (const HttpError& e) {
    return {e.code, e.what(), e.hint};
  } catch (const std::bad_alloc&) {
    return {"out_of_memory", "not enough memory", "a smaller size or fewer images need less"};
  } catch (const std::exception& e) {
    return {"internal", e.what(), ""};
  }
}

}  // namespace flux2
