#include "tests/support/devices.h"

#include <fmt/format.h>

#include "backend/cpu/cpu_device.h"
#include "engine/backends.h"

namespace flux2 {

std::shared_ptr<Device> scalar_device() { return open_cpu({.threads = 2, .profile = Profile::Exact, .scalar_only = true}); }

std::vector<NamedDevice> other_devices() {
  std::vector<NamedDevice> devices = {{"cpu exact", open_cpu({.threads = 2, .profile = Profile::Exact})},
                                      {"cpu fast", open_cpu({.threads = 2, .profile = Profile::Fast})}};
  if (gpu_count() > 0) devices.push_back({"cuda:0", open_gpu(0)});
  return devices;
}

}  // namespace flux2
