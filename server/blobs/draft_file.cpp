#include "server/blobs/draft_file.h"

#include <fmt/format.h>

#include <random>

#include "base/error.h"

namespace flux2 {

namespace {

// Two processes may write the same file at the same time.
std::string draft_name(const std::filesystem::path& target) {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{}", source(), source(), target.extension().string());
}

}  // namespace

DraftFile::DraftFile(const std::filesystem::path& workspace, std::filesystem::path target)
    : draft_(workspace / draft_name(target)), target_(std::move(target)), file_(draft_) {}

DraftFile::~DraftFile() {
  if (committed_) return;
  std::error_code ignored;
  std::filesystem::remove(draft_, ignored);
}

void DraftFile::commit() {
  file_.commit();
  std::error_code failure;
  std::filesystem::rename(draft_, target_, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot write {}: {}", target_.string(), failure.message());
  committed_ = true;
}

}  // namespace flux2
