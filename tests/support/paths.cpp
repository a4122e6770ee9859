#include "tests/support/paths.h"

namespace flux2::test {

std::filesystem::path source_folder() { return FLUX2_SOURCE_DIR; }
std::filesystem::path golden_folder() { return source_folder() / "tests/golden"; }
std::filesystem::path pico_folder() { return source_folder() / "models/pico"; }
std::string program() { return FLUX2_PROGRAM; }
std::string fault_library() { return FLUX2_FAULT_LIBRARY; }
std::string fetch_tool() { return FLUX2_FETCH_TOOL; }

}  // namespace flux2::test
