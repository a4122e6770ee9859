#pragma once

#include <string>

#include "base/json.h"
#include "cli/remote_server.h"

namespace flux2 {

// A training run of a server, by its id or its name.
Json find_run(const RemoteServer& server, const std::string& id_or_name);
std::string run_path(const Json& run);  // "/api/v1/training/run_…"

// Shows a training run until it ends or is paused. Ctrl-C ends only this. Waits for a server that restarts.
struct FollowedRun {
  Json run;        // as the server showed it last
  int signal = 0;  // that ended the following; 0: the run ended
};
FollowedRun follow_run(Invocation& run, const RemoteServer& server, const Json& started);

}  // namespace flux2
