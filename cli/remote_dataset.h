#pragma once

#include <filesystem>

#include "base/json.h"
#include "cli/remote_server.h"

namespace flux2 {

// Sends the images of a dataset file or of a folder to the server. Returns the dataset of a training request, with the same
// captions and settings.
Json uploaded_dataset(const std::filesystem::path& source, const RemoteServer& server, Invocation& run);

}  // namespace flux2
