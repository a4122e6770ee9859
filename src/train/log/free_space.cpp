#include "train/log/free_space.h"

#include "base/error.h"
#include "base/path_exists.h"
#include "base/text.h"

namespace flux2 {

void check_free_space(const std::filesystem::path& folder, uint64_t bytes, const std::string& what) {
  std::error_code failure;
  auto existing = std::filesystem::absolute(folder.empty() ? "." : folder, failure);
  while (!failure && !path_exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
  if (failure) return;
  const auto space = std::filesystem::space(existing, failure);
  if (failure || space.available >= bytes) return;
  throw Error(ErrorCode::CannotWrite,
              fmt::format("the disk of {} has too little space: {} needs {}, and {} are free", folder.string(), what,
                          byte_text(bytes), byte_text(space.available)),
              Hint("delete files there, or set {0} to a folder on another disk", {set_option("output_dir")}));
}

}  // namespace flux2
