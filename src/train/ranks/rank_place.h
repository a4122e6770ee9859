#pragma once

#include <functional>
#include <optional>
#include <string>

namespace flux2 {

// Which of several processes of one run this is, and where they meet.
struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0;  // on its machine: which device it uses
  std::string address = "127.0.0.1";
  int port = 29500;
  std::string token = {};  // processes with another one are refused
};

// From RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as launchers of distributed training set them, and
// FLUX2_RANK_TOKEN. Empty if neither RANK nor WORLD_SIZE is set. Throws InvalidArgument if one of them is missing or makes no
// sense. `get` returns null for an unset variable; the default reads the environment.
std::optional<RankPlace> rank_from_environment(const std::function<const char*(const char* name)>& get = {});

}  // namespace flux2
