#include "app/context.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

const char* set(const GetEnv& environment, const char* name) {
  const char* value = environment(name);
  return value && *value ? value : nullptr;
}

bool has_model(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "model_index.json", ignored);
}

}  // namespace

fs::path data_folder(const GetEnv& environment) {
  if (const char* home = set(environment, "FLUX2_HOME")) return home;
  if (const char* data = set(environment, "XDG_DATA_HOME")) return fs::path(data) / "flux2";
  if (const char* home = set(environment, "HOME")) return fs::path(home) / ".local/share/flux2";
  return {};
}

fs::path data_path(const GetEnv& environment, const fs::path& relative) {
  const fs::path data = data_folder(environment);
  return data.empty() ? data : data / relative;
}

fs::path bundled_model(const GetEnv& environment) {
  if (const char* folder = environment("FLUX2_BUNDLED")) return folder;  // set and empty: none
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (!failed)
    for (const char* relative : {"../models/pico", "../share/flux2/models/pico"})
      if (const fs::path folder = (program.parent_path() / relative).lexically_normal(); has_model(folder)) return folder;
  const fs::path built_from = fs::path(FLUX2_SOURCE_DIR) / "models/pico";
  return has_model(built_from) ? built_from : fs::path{};
}

std::vector<fs::path> model_folders(const AppContext& context) {
  std::vector<fs::path> folders;
  const ConfigFile& user = context.user;  // a file that lies in the current folder must not name others
  if (const auto paths = user.values.find("models.paths"); paths != user.values.end())
    for (const std::string& path : paths->second) folders.push_back(user.path.parent_path() / path);
  if (const fs::path models = data_path(context.environment, "models"); !models.empty()) folders.push_back(models);
  return folders;
}

}  // namespace flux2
