#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "app/context.h"
#include "hub/registered.h"
#include "hub/registry/registry.h"

namespace flux2 {

// The registry of the data folder, for writing; it is created if missing.
Registry open_registry(const AppContext& context);

// The same for reading. Empty if there is none. If it cannot be read, a warning is logged, since models given by path do not need
// it.
std::optional<Registry> look_into_registry(const AppContext& context);

// The registered parts, in the form that locating models needs.
RegisteredParts registered_parts(const AppContext& context);

// The record with that key or name, or the only one whose name starts with it. Throws NotFound with the nearest names, or
// InvalidArgument if several names start with it.
ModelRecord record_named(const Registry& registry, const std::string& name);

// Returns the path unchanged if it exists; else the path of the registered part of that kind and name; else the text itself, so
// that opening it reports that it is missing.
std::filesystem::path model_path(const std::string& text, ComponentKind kind, const AppContext& context);

}  // namespace flux2
