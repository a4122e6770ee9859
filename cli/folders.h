#pragma once

#include <filesystem>
#include <vector>

#include "cli/config_file.h"
#include "cli/settings.h"

namespace flux2 {

// FLUX2_HOME, else XDG_DATA_HOME/flux2, else ~/.local/share/flux2; empty when none of them is set.
std::filesystem::path data_folder(const GetEnv& environment);

// Where a GPU's fastest algorithms are remembered; empty when there is no data folder.
std::filesystem::path plan_folder(const GetEnv& environment);

// The bundled model: FLUX2_BUNDLED, else beside the program (../models/pico, ../share/flux2/models/pico), else in the
// source tree it was built from; empty when there is none.
std::filesystem::path bundled_model(const GetEnv& environment);

// Where installed models are looked for: models.paths of the project and the user, then the data folder's models/.
std::vector<std::filesystem::path> model_folders(const GetEnv& environment, const ConfigFile& project,
                                                 const ConfigFile& user);

}  // namespace flux2
