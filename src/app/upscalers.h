#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/context.h"
#include "hub/registry/model_record.h"

namespace flux2 {

// The registered upscalers that can be used, by name.
std::vector<ModelRecord> registered_upscalers(const AppContext& context);
int scale_of(const ModelRecord& upscaler);  // 1, 2 or 4

// The file of an upscaler: a path, or the name of a registered one. Without either, the registered one with the smallest scale
// that is enough, or else with the largest. Throws NotFound, with what to do, if there is none.
std::filesystem::path find_upscaler(const std::optional<std::string>& given, double scale, const AppContext& context);

}  // namespace flux2
