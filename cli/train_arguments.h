#pragma once

#include "app/training.h"
#include "cli/command.h"

namespace flux2 {

// The options of training that the command line gives, by name with underscores. `flux2 train data.toml` names the dataset file.
GivenTrainOptions given_train_options(const Invocation& run);

}  // namespace flux2
