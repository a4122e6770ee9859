#include "app/image_prompt_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/registry_access.h"
#include "base/error.h"
#include "base/foreign_text.h"
#include "base/path_exists.h"
#include "base/text.h"

namespace flux2 {

namespace fs = std::filesystem;

const char* name_of(ImagePromptPart part) { return part == ImagePromptPart::Adapter ? "image-prompt adapter" : "image encoder"; }

std::vector<ModelRecord> registered_image_prompt_parts(ImagePromptPart part, const AppContext& context) {
  const ModelType type = part == ImagePromptPart::Adapter ? ModelType::ImagePrompt : ModelType::ImageEncoder;
  std::vector<ModelRecord> found;
  if (const auto registry = look_into_registry(context))
    for (const ModelRecord& r : registry->all())
      if (r.type == type && r.state == ModelState::Ready && path_exists(r.path)) found.push_back(r);
  std::sort(found.begin(), found.end(), [](const ModelRecord& a, const ModelRecord& b) { return a.name < b.name; });
  return found;
}

fs::path registered_image_prompt_part(ImagePromptPart part, const std::string& name, const std::string& origin,
                                      const AppContext& context) {
  std::vector<std::string> names;
  for (const ModelRecord& r : registered_image_prompt_parts(part, context)) {
    if (r.name == name || r.key == name) return file_of_weights(r.path);
    names.push_back(r.name);
  }
  const auto near = nearest_words(name, names, 3);
  const std::string others = near.empty() ? "" : fmt::format("the nearest registered ones are {}; ", fmt::join(near, ", "));
  throw Error(ErrorCode::NotFound, fmt::format("{}: there is no {} named {}", origin, name_of(part), printable(name)),
              Hint(others + "{0} lists those that are registered", {run_command("models list")}));
}

fs::path file_of_weights(const fs::path& path) {
  if (!is_folder(path)) return path;
  if (const fs::path usual = path / "model.safetensors"; is_file(usual)) return usual;
  std::vector<fs::path> files;
  std::error_code failure;
  for (fs::directory_iterator entry(path, failure), end; !failure && entry != end; entry.increment(failure))
    if (entry->path().extension() == ".safetensors") files.push_back(entry->path());
  check(files.size() == 1, "the folder {} contains {} .safetensors files; name the one to use", path.string(), files.size());
  return files[0];
}

std::string recorded_name(const fs::path& weights) {
  const fs::path file = fs::absolute(weights);
  const std::string stem = file.stem().string(), folder = file.parent_path().filename().string();
  return (stem == "model" || stem == "pytorch_model") && !folder.empty() ? folder : stem;
}

}  // namespace flux2
