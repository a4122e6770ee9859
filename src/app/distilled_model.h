#pragma once

#include <filesystem>

#include "hub/model_files.h"
#include "train/train_options.h"

namespace flux2 {

// Puts a distilled transformer into a model folder of its own, output_dir/output_name: beside copies of the other parts of the
// model it was distilled from, and with a model_index.json that says how it is used: so many steps, no guidance. `transformer` is
// the file that the run wrote; its average is used if there is one. Returns the folder.
std::filesystem::path write_distilled_model(const ModelFiles& teacher, const std::filesystem::path& transformer,
                                            const TrainOptions& options);

}  // namespace flux2
