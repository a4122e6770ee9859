#pragma once

#include "cli/command.h"
#include "cli/options.h"

// Commands that let a language model look at images.
namespace flux2 {

int run_describe(Invocation& run);  // flux2 prompt describe IMAGE
std::vector<OptionGroup> describe_options();

int run_dataset_caption(Invocation& run);  // flux2 dataset caption FOLDER
std::vector<OptionGroup> caption_options();

}  // namespace flux2
