#pragma once

#include "app/config_file.h"
#include "app/context.h"
#include "base/limits.h"
#include "record/request_spec.h"

namespace flux2 {

// The limits in force: the defaults (those for a person at their own machine unless others are given), changed by limits.NAME in
// the user's configuration and by FLUX2_LIMITS_NAME in the environment. A project file cannot change them.
Limits limits_of(const GetEnv& environment, const ConfigFile& user, Limits defaults = {});

std::string environment_name_of(const LimitField& field);  // FLUX2_LIMITS_IMAGE_PIXELS

// Throws InvalidArgument, naming the limit and how to raise it, if a request asks for more than the limits allow. Every front end
// calls this through resolve(), before images are read or memory is taken.
void check_request_limits(const RequestSpec& spec, const Limits& limits);

// The same for a whole run of prompts.
void check_run_limits(size_t prompts, const RequestSpec& spec, const Limits& limits);

}  // namespace flux2
