#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace flux2 {

// A job request with our names in place of those of other studios (num_inference_steps, reference_images, …), each with a
// warning. Members that are null are left out: null means "not set".
Json in_our_words(const Json& request, std::vector<std::string>& warnings);

}  // namespace flux2
