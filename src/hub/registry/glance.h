#pragma once

#include <string>

#include "hub/registry/model_record.h"

namespace flux2 {

struct Glance {
  ModelState state = ModelState::Ready;
  std::string note;  // what is wrong
};

// The state of a record as far as a glance tells: whether its files are there with the sizes they had. A record that was
// found damaged by a closer look stays so until the next one.
Glance glance_at(const ModelRecord& record);

// The same without what a closer look has found.
Glance glance_at_sizes(const ModelRecord& record);

}  // namespace flux2
