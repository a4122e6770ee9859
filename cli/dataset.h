#pragma once

#include "cli/command.h"
#include "cli/options.h"

namespace flux2 {

// The actions of `flux2 dataset`, each a command of its own.
const std::vector<Command>& dataset_actions();
int run_dataset(Invocation& run);  // without an action
std::vector<OptionGroup> dataset_options();

int run_dataset_check(Invocation& run);
int run_dataset_buckets(Invocation& run);
int run_dataset_cache(Invocation& run);

}  // namespace flux2
