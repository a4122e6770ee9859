#pragma once

#include "base/error.h"
#include "cli/command.h"

namespace flux2 {

// For an error that says that a known model is not installed: asks the person at the terminal whether to install it, and does;
// --yes answers for them. True when it was installed, so that the command can go on.
bool installed_on_request(Invocation& run, const Error& error);

}  // namespace flux2
