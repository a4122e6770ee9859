#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/device.h"

namespace flux2 {

struct NamedDevice {
  std::string name;  // "cpu scalar", "cpu exact", "cpu fast", "cuda:0"
  std::shared_ptr<Device> device;
};

std::shared_ptr<Device> scalar_device();
// Every device this machine has, besides the scalar CPU one that all others are compared with.
std::vector<NamedDevice> other_devices();

}  // namespace flux2
