#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace flux2 {

// Why a job failed, as its record keeps it.
struct JobError {
  std::string code;  // "out_of_memory", "invalid_request", …
  std::string message, hint;
  bool cancelled = false;  // the run was stopped from outside
};

JobError job_error_of(const std::exception_ptr& thrown);
const char* job_error_code(ErrorCode code);

}  // namespace flux2
