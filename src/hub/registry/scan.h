#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "hub/registry/describe.h"

namespace flux2 {

// Everything below a folder that is a model or looks like one: single files, sharded sets, component folders, the role folders of
// other tools, and caches of Python's huggingface_hub (of several snapshots that share a file, one). Links that lead out of the
// folder are not followed, except from a hub snapshot to its own blobs. Headers only. `at` is called for each folder before it is
// searched; returning false ends the scan with Cancelled.
std::vector<Described> scan_folder(const std::filesystem::path& folder,
                                   const std::function<bool(const std::filesystem::path&)>& at = {}, const Log& log = {});

}  // namespace flux2
