#pragma once

#include <string>

#include "server/store/job_store.h"

namespace flux2 {

// "machine/process/random": unique among all workers of a queue.
std::string new_worker_name();

// Jobs of a process of this machine that was killed need not wait until their leases end.
void end_leases_of_the_dead(JobStore& store, int64_t now);

}  // namespace flux2
