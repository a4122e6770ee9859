#pragma once

#include <vector>

#include "cli/command.h"

namespace flux2 {

// Adds the actions of `flux2 client` that concern training runs: train, attach, runs, pause, resume, stop, checkpoints, download.
std::vector<Command> with_training_actions(std::vector<Command> actions);

}  // namespace flux2
