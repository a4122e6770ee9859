#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace flux2 {

// Throws CannotWrite, with both sizes and the folder, unless the disk that holds `folder` has `bytes` free. The folder need not
// exist. A disk that does not tell counts as large enough. `what` is to be written: "the state".
void check_free_space(const std::filesystem::path& folder, uint64_t bytes, const std::string& what);

}  // namespace flux2
