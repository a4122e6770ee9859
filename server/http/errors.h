#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "server/http/message.h"
#include "server/http/router.h"

namespace flux2 {

// A failure that an HTTP client sees. Handlers throw it where the status or the code matters; other errors are translated.
struct HttpError : std::runtime_error {
  HttpError(int status_, std::string code_, const std::string& message, std::string param_ = {})
      : std::runtime_error(message), status(status_), code(std::move(code_)), param(std::move(param_)) {}

  struct FieldProblem {
    std::string path, message;
  };

  int status;
  std::string code;   // "invalid_value", "queue_full"
  std::string param;  // the field at fault; empty: none
  std::string hint = {};
  std::vector<FieldProblem> fields = {};  // native family: all problems of a request
  Headers headers = {};                   // retry-after and the like
};

// The status and code for an error of the engine.
HttpError http_error_of(const Error& error);
// Of whatever was thrown; what is not an Error is "internal".
HttpError http_error_of(std::exception_ptr thrown);

// The answer in the family's own shape.
HttpResponse error_response(Family family, const HttpError& error, const std::string& request_id);

}  // namespace flux2
