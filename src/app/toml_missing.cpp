#include "app/config_file.h"
#include "base/error.h"

namespace flux2 {

bool toml_available() { return false; }

std::map<std::string, std::vector<std::string>> parse_toml(std::string_view) {
  throw Error(ErrorCode::InvalidArgument, "this build cannot read configuration files: it was built without toml++",
              "rebuild with toml++ installed, or use environment variables such as FLUX2_STEPS");
}

Json json_of_toml(std::string_view) {
  throw Error(ErrorCode::InvalidArgument, "this build cannot read TOML: it was built without toml++",
              "use a JSON file with the same keys, or rebuild with toml++ installed");
}

}  // namespace flux2
