#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/ranks/rank_place.h"

namespace flux2 {

// Further processes of this program on this machine, one a rank. This process is rank 0.
class LocalRanks {
 public:
  virtual ~LocalRanks() = default;  // ends processes that still run: SIGTERM, then SIGKILL after a few seconds

  virtual const RankPlace& place() const = 0;     // of this process
  virtual void forward(int signal) noexcept = 0;  // to all of them; may be called by a signal handler
  // Waits until all have ended. Throws Device, naming the rank and how it ended, if one failed.
  virtual void wait() = 0;
};

// Starts count − 1 copies of `argv` (the program and its arguments, as main() got them) with the variables of
// rank_from_environment() set, on a free port of this machine. They end when this process ends, however it ends;
// the system ties them to the thread that calls this, so call it from the main thread.
std::unique_ptr<LocalRanks> start_local_ranks(const std::vector<std::string>& argv, int count);

}  // namespace flux2
