#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "app/context.h"
#include "app/settings.h"
#include "cli/arguments.h"
#include "cli/console.h"

namespace flux2 {

// One run of a command: what it was asked for, and where its output goes.
struct Invocation : AppContext {
  Invocation(Console& to, AppContext context) : AppContext(std::move(context)), console(to) {}

  Console& console;
  Settings settings;
  std::vector<std::string> positional;

  RequestSpec spec() const { return spec_of(settings); }
};

struct Command {
  std::string name;
  std::vector<std::string> aliases;
  std::string summary;    // one line, for the list of commands
  std::string arguments;  // behind the name in the usage line
  std::vector<OptionGroup> (*options)();
  std::vector<std::string> examples;                   // three
  int (*run)(Invocation&);                             // returns the exit status; the caller handles Errors
  std::string details = {};                            // a paragraph for its help
  bool foreign_names = false;                          // accepts the option names of other programs
  const std::vector<Command>& (*actions)() = nullptr;  // commands of its own, named by the first argument

  const Command* find_action(std::string_view action) const;
};

const std::vector<Command>& commands();
const Command* find_command(std::string_view name);

// The command of ours that does what other programs call by the first word (ollama's `pull NAME`): "models install NAME". Empty
// when there is none.
std::string equivalent_command(const std::vector<std::string>& words);

// The texts of `flux2`, `flux2 help` and `flux2 COMMAND --help`; no line is longer than 100 columns.
enum class HelpDetail { Common, All };
std::string short_help();
std::string overview(HelpDetail detail = HelpDetail::Common);
std::string help_for(const Command& command, const Command* parent = nullptr, HelpDetail detail = HelpDetail::Common);

int run_generate(Invocation& run);
int run_edit(Invocation& run);
int run_shell(Invocation& run);
int run_grid(Invocation& run);
int run_mask(Invocation& run);
int run_upscale(Invocation& run);
int run_verify(Invocation& run);
int run_inpaint(Invocation& run);
int run_inspect(Invocation& run);
int run_tokenize(Invocation& run);
int run_vae(Invocation& run);
int run_models(Invocation& run);
int run_convert(Invocation& run);
int run_lora(Invocation& run);
int run_config(Invocation& run);
int run_plan(Invocation& run);
int run_bench(Invocation& run);
int run_doctor(Invocation& run);
int run_version(Invocation& run);
int run_help(Invocation& run);
int run_completions(Invocation& run);
int run_man(Invocation& run);
int run_selftest(Invocation& run);
int run_encode_text(Invocation& run);
int run_prompt(Invocation& run);
int run_train(Invocation& run);
int run_serve(Invocation& run);
int run_worker(Invocation& run);
std::filesystem::path server_folder(const Invocation& run);  // of the database and the images: --data, else the data folder
const std::vector<Command>& train_actions();
const std::vector<Command>& plan_actions();
const std::vector<Command>& prompt_actions();

}  // namespace flux2
