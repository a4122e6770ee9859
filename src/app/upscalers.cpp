#include "app/upscalers.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/registry_access.h"
#include "base/path_exists.h"

namespace flux2 {

std::vector<ModelRecord> registered_upscalers(const AppContext& context) {
  std::vector<ModelRecord> found;
  if (const auto registry = look_into_registry(context))
    for (const ModelRecord& r : registry->all())
      if (r.type == ModelType::Upscaler && r.state == ModelState::Ready && path_exists(r.path)) found.push_back(r);
  std::sort(found.begin(), found.end(), [](const ModelRecord& a, const ModelRecord& b) { return a.name < b.name; });
  return found;
}

int scale_of(const ModelRecord& upscaler) { return upscaler.variant == "x1" ? 1 : upscaler.variant == "x2" ? 2 : 4; }

std::filesystem::path find_upscaler(const std::optional<std::string>& given, double scale, const AppContext& context) {
  const Hint how("{0} installs one; {1} names a file or a registered one",
                 {run_command("models install realesrgan-x4plus"), set_option("upscaler")});
  if (given && !given->empty()) {
    const auto path = model_path(*given, ComponentKind::Upscaler, context);
    if (!path_exists(path)) throw Error(ErrorCode::NotFound, fmt::format("there is no upscaler named {}", *given), how);
    return path;
  }
  const auto records = registered_upscalers(context);
  const ModelRecord* best = nullptr;
  for (const ModelRecord& r : records) {
    if (scale_of(r) == 1 && scale > 1) continue;
    const bool enough = scale_of(r) >= scale, best_is_enough = best && scale_of(*best) >= scale;
    const bool smaller = best && scale_of(r) < scale_of(*best);
    if (!best || (enough && !best_is_enough) || (enough && smaller) || (!enough && !best_is_enough && !smaller)) best = &r;
  }
  if (!best) throw Error(ErrorCode::NotFound, "no upscaler is installed", how);
  return best->path;
}

}  // namespace flux2
