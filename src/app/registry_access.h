#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "app/context.h"
#include "hub/registered.h"
#include "hub/registry/registry.h"

namespace flux2 {

// The registry of the data folder, for changing it; it is made when missing.
Registry open_registry(const AppContext& context);

// The same for looking. Nothing when there is none; one that cannot be read is a warning, since models named by their
// path do not need it.
std::optional<Registry> look_into_registry(const AppContext& context);

// What is registered, as finding models needs it.
RegisteredParts registered_parts(const AppContext& context);

// The record with that key or name, or the only one whose name begins so. Throws NotFound with the nearest names, or
// InvalidArgument when several begin so.
ModelRecord record_named(const Registry& registry, const std::string& name);

// A path as it is when something is there; else the path of the registered part of that kind with that name; else the text
// itself, so that whoever opens it says that it is missing.
std::filesystem::path model_path(const std::string& text, ComponentKind kind, const AppContext& context);

}  // namespace flux2
