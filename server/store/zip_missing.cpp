#include "base/error.h"
#include "server/store/zip_reader.h"

namespace flux2 {

bool zip_reader_available() { return false; }

std::unique_ptr<ZipReader> open_zip(const std::filesystem::path&, const ZipLimits&) {
  throw Error(ErrorCode::InvalidArgument, "this build cannot read zip archives, because it was made without libzip",
              "install the package libzip-dev and build again");
}

}  // namespace flux2
