#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "record/request_fields.h"

namespace flux2 {

// One option as the user knows it. Options of requests and of the program itself are made from tables of fields
// (record/request_fields.h, cli/program_fields.h); options of a single command are defined here.
struct OptionSpec {
  std::string name;  // long name, with dashes
  char letter = 0;
  std::string value;  // what follows it, for the help; empty for a flag
  std::string help;
  bool repeatable = false;
  const Field* field = nullptr;         // which the environment and the configuration may set too
  std::string also = {};                // other spellings of it, as the parser takes them: "--ref,-r"
  bool common = true;                   // listed by short help
  std::vector<std::string> words = {};  // values that a shell offers

  bool is_later() const { return field && field->later; }
  bool is_listed() const { return !is_later() && !help.empty(); }
};

struct OptionGroup {
  std::string title;
  std::vector<OptionSpec> options;
};

// An option name of another program. Its values are translated and assigned to `target`; without a target it has no effect.
struct ForeignOption {
  // What a value says about an adapter of the target "lora", the first about the first.
  enum Piece { Whole, Strength, Include, Exclude };

  std::string name;
  int values = 1;
  std::string target;
  std::function<std::string(const std::vector<std::string>&)> translate = {};  // empty: the value as it is
  Piece piece = Whole;
};

// Options behind which other programs take several values: the words that go on with such a list.
struct ListOption {
  std::string name;
  bool (*continues)(const std::string& word);
};

// The fields behind the options of a command.
std::vector<const Field*> fields_of(const std::vector<OptionGroup>& groups);

// An option made from a field of a request or of the program, with its help in the words of the command line.
OptionSpec option(std::string_view field, char letter = 0);
OptionSpec option(std::string_view field, char letter, std::string help);  // with help of its own

// Short help lists these options and no others.
void set_common(std::vector<OptionGroup>& groups, const std::vector<std::string>& names);

std::vector<OptionGroup> generate_options();
std::vector<OptionGroup> shell_options();
std::vector<OptionGroup> without_local_options(std::vector<OptionGroup> groups);  // of generate or inpaint, for a server
std::vector<OptionGroup> grid_options();
std::vector<OptionGroup> plan_options();
std::vector<OptionGroup> verify_options();
std::vector<OptionGroup> mask_options();
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
std::vector<OptionGroup> man_options();
std::vector<OptionGroup> selftest_options();
std::vector<OptionGroup> encode_text_options();
std::vector<OptionGroup> prompt_options();
std::vector<OptionGroup> rewrite_options();
std::vector<OptionGroup> train_options();
std::vector<OptionGroup> serve_options();
std::vector<OptionGroup> worker_options();

const std::vector<ForeignOption>& foreign_options();
const std::vector<ListOption>& list_options();

}  // namespace flux2
