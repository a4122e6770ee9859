#include "cli/folders.h"

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

fs::path plan_folder(const GetEnv& environment) {
  const fs::path data = data_folder(environment);
  return data.empty() ? data : data / "cache/plans";
}

fs::path bundled_model(const GetEnv& environment) {
  if (const char* folder = environment("FLUX2_BUNDLED")) return folder;  // set and empty: none
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (!failed)
    for (const char* relative : {"../models/pico", "../share/flux2/models/pico"})
      if (const fs::path folder = (program.parent_path() / relative).lexically_normal(); has_model(folder))
        return folder;
  const fs::path built_from = fs::path(FLUX2_SOURCE_DIR) / "models/pico";
  return has_model(built_from) ? built_from : fs::path{};
}

std::vector<fs::path> model_folders(const GetEnv& environment, const ConfigFile& project, const ConfigFile& user) {
  std::vector<fs::path> folders;
  for (const ConfigFile* file : {&project, &user})
    if (const auto paths = file->values.find("models.paths"); paths != file->values.end())
      for (const std::string& path : paths->second) folders.push_back(file->path.parent_path() / path);
  if (const fs::path data = data_folder(environment); !data.empty()) folders.push_back(data / "models");
  return folders;
}

}  // namespace flux2
