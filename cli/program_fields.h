#pragma once

#include <vector>

#include "record/request_fields.h"

namespace flux2 {

// Settings of the program rather than of a request: messages, the terminal, the server and its client, and the safety checks.
const std::vector<Field>& program_fields();

}  // namespace flux2
