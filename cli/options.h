#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// One option as the user knows it. The tables of these serve the parser, the help, the environment (FLUX2_STEPS) and
// the configuration files (steps in section [generate]).
struct OptionSpec {
  std::string name;  // long name, with dashes
  char letter = 0;
  std::string value;  // what follows it, for the help; empty for a flag
  std::string help;
  std::string section = {};  // of the configuration file; empty: neither file nor environment may set it
  bool repeatable = false;
  bool later = false;                      // known, but not part of this version …
  std::vector<std::string> harmless = {};  // … except for these values, which ask for nothing
  std::string also = {};                   // other spellings of it, as the parser takes them: "--ref,-r"
};

struct OptionGroup {
  std::string title;
  std::vector<OptionSpec> options;
};

// A name that other programs use: its values, translated, belong to `target`; without target it has no effect.
struct ForeignOption {
  std::string name;
  int values = 1;
  std::string target;
  std::function<std::string(const std::vector<std::string>&)> translate = {};  // empty: the value as it is
};

std::vector<OptionGroup> generate_options();
std::vector<OptionGroup> shell_options();
std::vector<OptionGroup> grid_options();
std::vector<OptionGroup> verify_options();
std::vector<OptionGroup> upscale_options();
std::vector<OptionGroup> inpaint_options();
std::vector<OptionGroup> inspect_options();
std::vector<OptionGroup> tokenize_options();
std::vector<OptionGroup> vae_options();
std::vector<OptionGroup> bench_options();
std::vector<OptionGroup> convert_options();
std::vector<OptionGroup> lora_options();
std::vector<OptionGroup> doctor_options();
std::vector<OptionGroup> config_options();
std::vector<OptionGroup> version_options();

const std::vector<ForeignOption>& foreign_options();

}  // namespace flux2
