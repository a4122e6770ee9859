#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/help_text.h"
#include "cli/topics.h"

namespace flux2 {

namespace {

constexpr size_t kIndent = 28;

std::string option_lines(const OptionSpec& option) {
  return two_columns((option.letter ? "  " : "      ") + option_usage(option), option.help, kIndent);
}

// What most people use; the overview lists the other commands by name alone.
bool is_common(const Command& command) {
  for (const char* name :
       {"generate", "edit", "inpaint", "upscale", "shell", "train", "models", "inspect", "config", "doctor", "help"})
    if (command.name == name) return true;
  return false;
}

std::string full_name(const Command& command, const Command* parent) {
  return parent ? parent->name + " " + command.name : command.name;
}

}  // namespace

std::string help_for(const Command& command, const Command* parent, HelpDetail detail) {
  const std::string name = full_name(command, parent);
  std::string text = wrapped(fmt::format("flux2 {}: {}", name, command.summary), 0, 0);
  text += fmt::format("\n\nUsage: flux2 {} {}\n", name, command.arguments);
  if (!command.aliases.empty()) text += fmt::format("Also: {}\n", fmt::join(command.aliases, ", "));
  if (!command.details.empty()) text += "\n" + wrapped(command.details, 0, 0) + "\n";
  if (command.actions) {
    text += "\nActions:\n";
    for (const Command& action : command.actions())
      text += fmt::format("  {:<12}", action.name) + wrapped(action.summary, 14, 14) + "\n";
  }
  size_t options = 0, shown = 0;
  for (const OptionGroup& group : command.options()) {
    std::string lines;
    for (const OptionSpec& option : group.options) {
      if (!option.is_listed()) continue;
      ++options;
      if (detail == HelpDetail::Common && !option.common) continue;
      ++shown;
      lines += option_lines(option);
    }
    if (!lines.empty()) text += "\n" + group.title + ":\n" + lines;
  }
  if (shown < options)
    text += fmt::format("\nThese are {} of {} options: `flux2 {} --help-all` shows all.\n", shown, options, name);
  text += "\nExamples:\n";
  for (const std::string& example : command.examples) text += "  " + wrapped_command(example, 6, 2) + "\n";
  return text;
}

std::string overview(HelpDetail detail) {
  std::string text =
      "flux2: images with the FLUX.2 models\n\n"
      "Usage: flux2 COMMAND [options] [--] [arguments]\n"
      "       flux2 \"a prompt\"\n\nCommands:\n";
  std::vector<std::string> others;
  for (const Command& command : commands()) {
    if (detail == HelpDetail::All || is_common(command)) text += two_columns("  " + command.name, command.summary, 16);
    else others.push_back(command.name);
  }
  if (!others.empty())
    text += "\n" +
            wrapped(fmt::format("More commands: {}. `flux2 help --help-all` says what they do.", fmt::join(others, ", ")), 0, 0) +
            "\n";
  text += "\nTopics:\n";
  for (const Topic& topic : topics()) text += two_columns("  " + topic.name, topic.summary, 16);
  text +=
      "\n`flux2 help COMMAND` shows the common options of a command, `flux2 COMMAND --help-all` all of them;\n"
      "`flux2 help TOPIC` shows a topic.\n\nExamples:\n"
      "  flux2 \"a panda on a green background with yellow dots\"\n"
      "  flux2 generate -m flux.2-klein-4b -p \"a lighthouse at dusk\" -o lighthouse.png\n"
      "  flux2 inspect lighthouse.png\n";
  return text;
}

std::string short_help() {
  return "usage: flux2 COMMAND [options], or flux2 \"a prompt\"\n"
         "       flux2 help lists the commands, flux2 help COMMAND its options\n";
}

int run_help(Invocation& run) {
  const HelpDetail detail = run.settings.flag("help-all") ? HelpDetail::All : HelpDetail::Common;
  if (run.positional.empty()) {
    run.console.result(overview(detail));
    return 0;
  }
  const std::string& name = run.positional.front();
  const Command* command = find_command(name);
  const Topic* topic = find_topic(name);
  if (!command && !topic) {
    const std::string own = equivalent_command({run.positional.begin(), run.positional.end()});
    throw Error(
        ErrorCode::InvalidArgument, "unknown command " + name,
        own.empty() ? Hint("{0} lists commands and topics", {run_command("help")}) : Hint("{0} does that", {run_command(own)}));
  }
  const Command* action = command && run.positional.size() > 1 ? command->find_action(run.positional[1]) : nullptr;
  if (const size_t understood = action ? 2 : 1; run.positional.size() > understood)
    throw Error(ErrorCode::InvalidArgument,
                command && command->actions && !action
                    ? fmt::format("unknown action \"{}\" of {}", printable(run.positional[1]), command->name)
                    : fmt::format("unexpected argument \"{}\"", printable(run.positional[understood])),
                Hint("{0} shows the help of this command", {run_command("help " + name)}));
  std::string text = !command ? "" : action ? help_for(*action, command, detail) : help_for(*command, nullptr, detail);
  if (topic) text += (text.empty() ? "" : "\n") + topic->text();  // `config` is both
  run.console.result(text);
  return 0;
}

}  // namespace flux2
