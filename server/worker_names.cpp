#include "server/worker_names.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "server/store/ids.h"

namespace flux2 {

namespace {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// Whether the worker of that name belonged to a process of this machine that has ended.
bool has_ended(const std::string& worker) {
  const std::string host = host_name() + "/";
  if (!worker.starts_with(host)) return false;
  const long pid = std::atol(worker.c_str() + host.size());
  return pid > 0 && pid != ::getpid() && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

}  // namespace

std::string new_worker_name() { return fmt::format("{}/{}/{}", host_name(), ::getpid(), new_id()); }

void end_leases_of_the_dead(JobStore& store, int64_t now) {
  constexpr int64_t kLongAgo = 3'600'000;
  for (const char* state : {"running", "cancelling"})
    for (const Job& job : store.list({.state = state, .kind = {}, .project = {}, .before = {}, .limit = 1000}))
      if (has_ended(job.worker)) store.renew(job.worker, {job.id}, now - kLongAgo);
}

}  // namespace flux2
