#include "app/context.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "hub/folder_layout.h"

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

// "~" and "~/x" as a shell reads them.
fs::path with_home(const std::string& path, const GetEnv& environment) {
  if (!path.starts_with('~')) return path;
  if (path != "~" && !path.starts_with("~/"))
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("models.paths has \"{}\"; the home folder of another user is not looked up", printable(path)),
                fmt::format("write the full path, or ./{} for a folder with this name", printable(path)));
  const char* home = set(environment, "HOME");
  if (!home)
    throw Error(ErrorCode::InvalidArgument, fmt::format("models.paths has \"{}\", and HOME is not set", printable(path)),
                "write the full path, or set HOME");
  return home + path.substr(1);
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
  std::vector<fs::path> places = {fs::path(FLUX2_SOURCE_DIR) / "models"};
  if (!failed)
    for (const char* relative : {"../share/flux2/models", "../models"})
      places.insert(places.begin(), (program.parent_path() / relative).lexically_normal());
  for (const fs::path& place : places)
    for (const char* name : {"pico-4-steps", "pico"})
      if (has_model(place / name)) return place / name;
  return {};
}

std::vector<fs::path> bundled_models(const GetEnv& environment) {
  const fs::path first = bundled_model(environment);
  if (first.empty()) return {};
  const auto lender = lender_of(first);
  return lender && has_model(*lender) ? std::vector{first, *lender} : std::vector{first};
}

std::vector<fs::path> model_folders(const AppContext& context) {
  std::vector<fs::path> folders;
  const ConfigFile& user = context.user;  // a file that lies in the current folder must not name others
  if (const auto paths = user.values.find("models.paths"); paths != user.values.end())
    for (const std::string& path : paths->second)
      folders.push_back(user.path.parent_path() / with_home(path, context.environment));
  if (const fs::path models = data_path(context.environment, "models"); !models.empty()) folders.push_back(models);
  return folders;
}

}  // namespace flux2
