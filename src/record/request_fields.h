#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "record/request_spec.h"

namespace flux2 {

enum class FieldType {
  Text,
  Texts,  // a list; options that may be repeated
  Integer,
  Number,
  Flag,
  Choice,  // one of a few words
  Seed,    // an integer, or "random"
  Size,    // "768x512", "1024", "16:9": sets width and height
};

using FieldMember =
    std::variant<std::monostate, RequestSpec::Text RequestSpec::*, RequestSpec::Texts RequestSpec::*,
                 RequestSpec::Integer RequestSpec::*, RequestSpec::Number RequestSpec::*, RequestSpec::Flag RequestSpec::*>;

// The definition of one field. The name with underscores is the JSON key and the shell's key; with dashes it is the option and
// the configuration key; in capitals after FLUX2_ it is the environment variable.
struct Field {
  std::string name;
  FieldType type = FieldType::Text;
  std::string unit = {};     // stands for the value in help: "PX"
  std::string help = {};     // <cfg> stands for another field, as the front end spells it; empty: accepted but not listed
  std::string section = {};  // of configuration files; empty: only a request itself may set it
  // Whether a flux2.toml in the current folder may set it too. Such a file may come from anybody, so this is for defaults of
  // images alone: nothing that names a path, writes somewhere else, uses the network or takes more of the machine.
  enum Project { Never, Always, ByName } project = Never;  // ByName: as a plain name, never as a path
  FieldMember member = {};                                 // empty for settings of a program rather than of a request
  double low = 0, high = 0;                                // of Integer and Number
  double smallest = 0;   // of what a person may ask for, where that is more than `low`: records may contain less
  bool limited = false;  // the largest value is a limit that the user may raise (base/limits.h); `high` is any number
  std::vector<std::string> choices = {};
  void (*check_text)(const std::string& text) = nullptr;  // throws if the syntax of a text is invalid

  // How a record names it: a key of our JSON ("steps", "mask.grow"; "!negative_references" is the opposite flag) and of A1111's
  // last line. Empty: not recorded, or recorded by code of its own.
  std::string record_key = {}, a1111_key = {};
  bool is_private = false;  // left out of private records

  bool chooses_model = false;  // decides which files are used
  bool loads_model = false;    // requests that differ in it cannot share a loaded model

  bool later = false;                      // known, but not available in this version …
  std::vector<std::string> harmless = {};  // … except for these values, which have no effect

  bool common = false;                        // most people need it: short help lists it
  std::vector<std::string> suggestions = {};  // values worth offering where other texts are valid too; see also `choices`
};

// Every field of a request, in the order help lists them.
const std::vector<Field>& request_fields();
const Field* find_field(std::string_view name);  // with dashes or underscores
const Field& field(std::string_view name);       // one that must exist

std::string option_name(const Field& field);       // "time-rounding"
std::string environment_name(const Field& field);  // "FLUX2_TIME_ROUNDING"
std::string config_key(const Field& field);        // "generate.time-rounding"; empty when configuration may not set it

}  // namespace flux2
