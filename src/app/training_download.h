#pragma once

#include <filesystem>
#include <string>

#include "app/context.h"
#include "hub/remote/fetch.h"

namespace flux2 {

// A state folder in a repository of a hub: "owner/name/path/to/state", with an optional ":revision" and ":model" behind it.
// Throws InvalidArgument if the text is not of that form.
Source state_source(const std::string& text);

// Downloads that folder into the shared cache, unless it is there, and returns where it lies.
std::filesystem::path download_state(const std::string& text, const std::string& token, const AppContext& context,
                                     const std::function<bool()>& cancelled = {});

}  // namespace flux2
