#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "record/request_spec.h"

namespace flux2 {

// For a client: the native job request (job_request.h) of a spec. `image` turns the path of an image into what the request
// contains. Fields that only the server's own command line may set are listed in `left_out`.
Json job_request_of(const RequestSpec& spec, const std::string& kind,
                    const std::function<std::string(const std::string& path)>& image, std::vector<std::string>& left_out);

}  // namespace flux2
