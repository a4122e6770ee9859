#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "app/config_file.h"
#include "base/limits.h"
#include "base/log.h"

namespace flux2 {

class Safety;

using GetEnv = std::function<const char*(const char*)>;

// The surroundings of a request, the same for every front end: the environment, the configuration files, and where messages go.
struct AppContext {
  GetEnv environment = [](const char*) -> const char* { return nullptr; };
  ConfigFile project, user;  // flux2.toml here, config.toml of the data folder
  Limits limits;             // what requests and files may ask for
  bool log_prompts = false;  // whether messages may quote prompts
  Log log;
  std::function<std::string()> standard_input;  // all of it, for the image "-"; empty where it cannot be read
  std::shared_ptr<Safety> safety;               // checks prompts and images (app/safety.h); null: nothing is checked
};

// The context of this process: its environment and its configuration files.
AppContext process_context(Log log = {});

// Logs a notice for every key that the project file may not set: it belongs to the user's configuration.
void warn_of_refused_keys(const AppContext& context);

// FLUX2_HOME, else XDG_DATA_HOME/flux2, else ~/.local/share/flux2; empty when none of them is set.
std::filesystem::path data_folder(const GetEnv& environment);

// A file or folder inside the data folder; empty when there is none.
std::filesystem::path data_path(const GetEnv& environment, const std::filesystem::path& relative);

// The bundled model that is used if none is chosen: FLUX2_BUNDLED, else pico-4-steps or pico beside the program (../models,
// ../share/flux2/models), else in the source tree the program was built from; empty when there is none.
std::filesystem::path bundled_model(const GetEnv& environment);

// That one, and the model with guidance that lends it its parts and can be trained.
std::vector<std::filesystem::path> bundled_models(const GetEnv& environment);

// The folders that are searched for installed models: models.paths of the user's configuration, then models/ in the data folder.
// ~ stands for the home folder. Throws InvalidArgument for ~NAME.
std::vector<std::filesystem::path> model_folders(const AppContext& context);

}  // namespace flux2
