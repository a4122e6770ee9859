#include "engine/gpu_ranks.h"

#include "base/error.h"
#include "engine/backends.h"

namespace flux2 {

std::string device_of_rank(const std::string& device, int local_rank) {
  if (device != "auto" && device != "cuda") return device;
  const int count = gpu_count();
  if (count == 0) return device;
  const int index = local_rank % count;
  if (device == "auto" && !gpu_problem(index).empty()) return "cpu";
  return fmt::format("cuda:{}", index);
}

}  // namespace flux2
