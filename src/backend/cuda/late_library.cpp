#include "backend/cuda/late_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace flux2 {

namespace {

// Opening what is open already only counts; the library is never closed, because its threads may outlive us.
void* open(const std::string& file) { return ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); }

}  // namespace

bool LateLibrary::opens() const { return open(file_) != nullptr; }

void* LateLibrary::symbol(const char* name) const {
  void* library = open(file_);
  if (!library)
    throw Error(
        ErrorCode::Device, fmt::format("{} cannot be opened: {}", file_, ::dlerror()),
        Hint("install the CUDA libraries, add their folder to LD_LIBRARY_PATH, or use {0}", {set_option("device", "cpu")}));
  void* address = ::dlsym(library, name);
  if (!address)
    throw Error(ErrorCode::Device, fmt::format("{} has no function {}", file_, name), "install a newer version of the library");
  return address;
}

}  // namespace flux2
