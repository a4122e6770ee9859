#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>

#include "base/mapped_file.h"
#include "base/temporary_files.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/config_keys.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

// A prompt or an option as the first argument stands for `generate`: `flux2 "a fox"`, `flux2 -m pico -p fox`.
const Command& command_for(const std::vector<std::string>& words) {
  const std::string& first = words.front();
  if (const Command* command = find_command(first)) return *command;
  if (first.find(' ') != first.npos || (first.size() > 1 && first.starts_with('-'))) return *find_command("generate");
  if (const std::string own = equivalent_command(words); !own.empty())
    throw Error(ErrorCode::InvalidArgument, "unknown command " + first, Hint("{0} does that", {run_command(own)}));
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  const std::string near = nearest_word(first, names);
  std::string prompt = first;  // the words before the first option
  for (size_t i = 1; i < words.size() && !words[i].starts_with('-'); ++i) prompt += " " + words[i];
  if (near.empty() && prompt != first)
    throw Error(ErrorCode::InvalidArgument, "unknown command " + first,
                Hint("put a prompt in quotes: {0}", {run_command("\"" + printable(prompt) + "\"")}));
  throw Error(ErrorCode::InvalidArgument, "unknown command " + first,
              near.empty() ? Hint("{0} lists the commands; for a prompt of one word use {1}",
                                  {run_command("help"), run_command("generate " + printable(first))})
                           : Hint("did you mean " + near + "?"));
}

int run(Console& console, std::vector<std::string> words) {
  if (words.empty() && ::isatty(STDIN_FILENO) && ::isatty(STDERR_FILENO)) words = {"shell"};
  if (words.empty()) {
    write_text(Channel::Message, short_help());
    return 2;
  }
  if (words[0] == "--version") words[0] = "version";
  if (words[0] == "--help" || words[0] == "-h") words[0] = "help";
  if (words[0] == "--help-all") words.insert(words.begin(), "help");
  const Command& first = command_for(words);
  if (find_command(words.front())) words.erase(words.begin());
  const Command* action = words.empty() ? nullptr : first.find_action(words.front());
  const Command& command = action ? *action : first;
  if (action) words.erase(words.begin());

  const auto options = command.options();
  Arguments arguments = parse_arguments(options, command.foreign_names ? foreign_options() : std::vector<ForeignOption>{}, words);
  const bool help_all = arguments.options.contains("help-all") && command.name != "help";
  if (help_all || arguments.options.contains("help")) {
    console.result(help_for(command, action ? &first : nullptr, help_all ? HelpDetail::All : HelpDetail::Common));
    return 0;
  }
  // Messages must work as asked before the configuration is read, since reading it may fail.
  Settings settings;
  const auto fields = fields_of(options);
  const GetEnv environment = [](const char* name) -> const char* { return std::getenv(name); };
  SettingLayer typed = layer_of(arguments);
  hide_configured_transformer(typed);
  settings.add(std::move(typed));
  settings.add(layer_of_environment(fields, environment));
  console.configure(settings, environment);
  Invocation invocation(console, process_context(console.log()));
  for (const ConfigFile* file : {&invocation.project, &invocation.user}) {
    settings.add(layer_of_file(fields, *file));
    if (command.name != "config") refuse_unknown_keys(*file);  // which is how a wrong key is removed
  }
  console.configure(settings, environment);
  warn_of_refused_keys(invocation);
  invocation.log_prompts = settings.flag("log-prompts");
  invocation.settings = std::move(settings);
  invocation.positional = std::move(arguments.positional);
  return command.run(invocation);
}

std::atomic<bool> g_memory_ran_out = false;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

// The new-handler: called when an allocation fails.
[[noreturn]] void note_lack_of_memory() {
  g_memory_ran_out = true;
  throw std::bad_alloc();
}

// Some functions of libraries need memory and may not throw: destructors, and the iterators over folders of libstdc++ 12. Without
// memory C++ ends the program here, at times without telling the exception.
[[noreturn]] void end_unhandled() {
  delete_noted_temporaries();
  bool memory_ran_out = g_memory_ran_out;
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    memory_ran_out = true;
  } catch (...) {
    write_last_words("flux2: internal error: an exception was not handled\n");
  }
  if (memory_ran_out) {
    write_last_words("flux2: not enough memory\n");
    ::_exit(exit_code(ErrorCode::OutOfMemory));
  }
  std::abort();
}

// A file that changed while it was read explains any other error.
Error cause_of(const Error& error) {
  try {
    if (error.code() != ErrorCode::Cancelled) check_mapped_files();
  } catch (const Error& changed) {
    return changed;
  }
  return error;
}

}  // namespace

}  // namespace flux2

int main(int argc, char** argv) {
  using namespace flux2;
  open_standard_streams();
  std::set_terminate(end_unhandled);
  std::set_new_handler(note_lack_of_memory);
  watch_interrupts();
  Console console;
  try {
    const int status = run(console, std::vector<std::string>(argv + 1, argv + argc));
    check_mapped_files();
    return status;
  } catch (const Error& error) {
    const Error e = cause_of(error);
    if (e.code() == ErrorCode::Cancelled && interrupt_signal() != 0) {
      console.error(Error(e.code(), "stopped"));
      return 128 + interrupt_signal();
    }
    console.error(e);
    return exit_code(e.code());
  } catch (const std::bad_alloc&) {
    console.error(Error(ErrorCode::OutOfMemory, "not enough memory", "a smaller --size or --batch needs less"));
    return exit_code(ErrorCode::OutOfMemory);
  } catch (const std::exception& e) {
    console.error(Error(ErrorCode::Internal, e.what()));
    return exit_code(ErrorCode::Internal);
  }
}
