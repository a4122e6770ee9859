#pragma once

#include <memory>

#include "backend/cpu/cpu_features.h"
#include "tensor/device.h"

namespace flux2 {

struct CpuOptions {
  int threads = 0;  // 0: one per physical core
  Profile profile = Profile::Fast;
  bool scalar_only = false;  // only the scalar kernels, which tests compare the others with
  std::string level = {};    // a name of levels_of(), whose instructions alone are used; empty: all that the processor has
};

std::shared_ptr<Device> open_cpu(const CpuOptions& options = {});

}  // namespace flux2
