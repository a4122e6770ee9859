#include <string>

#include "app/config_file.h"
#include "base/error.h"
#include "tests/fuzz/target.h"

// A configuration file, and one value of it changed.
FUZZ_TARGET(toml) {
  using namespace flux2;
  const std::string text(flux2_fuzz::text_of(data, size));
  if (!toml_available()) return;
  const std::string edited = edit_toml(text, "generate", "steps", "4");
  try {
    parse_toml(edited);
  } catch (const Error&) {}
  parse_toml("x = " + toml_literal(text) + "\n");
  parse_toml(text);
}
