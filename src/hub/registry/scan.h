#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "hub/registry/describe.h"

namespace flux2 {

// Everything below a folder that is a model or pretends to be one: single files, sharded sets, component folders, the role
// folders of other tools, and caches of Python's hub library (of several snapshots that share a file, one). Links that
// lead out of the folder are not followed, except from a hub snapshot to its own blobs. Headers only.
// `at` hears each folder before it is looked at and ends the scan with Cancelled by returning false.
std::vector<Described> scan_folder(const std::filesystem::path& folder,
                                   const std::function<bool(const std::filesystem::path&)>& at = {}, const Log& log = {});

}  // namespace flux2
