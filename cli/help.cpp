#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "cli/command.h"

namespace flux2 {

namespace {

constexpr size_t kWidth = 100, kIndent = 28;

size_t columns(std::string_view utf8) {
  size_t n = 0;
  for (const char c : utf8) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

// Words in lines of at most kWidth columns; lines after the first begin at `indent`, the first after `used` columns.
std::string wrapped(std::string_view text, size_t indent, size_t used) {
  std::string out;
  for (bool first = true; !text.empty(); first = false) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!first && used + 1 + columns(word) > kWidth) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (!first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += columns(word);
    text = end == text.size() ? std::string_view{} : text.substr(end + 1);
  }
  return out;
}

std::string option_lines(const OptionSpec& option) {
  std::string left =
      option.letter ? fmt::format("  -{}, --{}", option.letter, option.name) : fmt::format("      --{}", option.name);
  if (!option.value.empty()) left += " " + option.value;
  const size_t used = columns(left);
  std::string out = left;
  if (used + 2 > kIndent) out += "\n" + std::string(kIndent, ' ');
  else out += std::string(kIndent - used, ' ');
  return out + wrapped(option.help, kIndent, kIndent) + "\n";
}

}  // namespace

std::string help_for(const Command& command, const Command* parent) {
  const std::string name = parent ? parent->name + " " + command.name : command.name;
  std::string text = wrapped(fmt::format("flux2 {}: {}", name, command.summary), 0, 0);
  text += fmt::format("\n\nUsage: flux2 {} {}\n", name, command.arguments);
  if (!command.aliases.empty()) text += fmt::format("Also: {}\n", fmt::join(command.aliases, ", "));
  if (!command.details.empty()) text += "\n" + wrapped(command.details, 0, 0) + "\n";
  if (command.actions) {
    text += "\nActions:\n";
    for (const Command& action : command.actions())
      text += fmt::format("  {:<12}", action.name) + wrapped(action.summary, 14, 14) + "\n";
  }
  for (const OptionGroup& group : command.options()) {
    std::string lines;
    for (const OptionSpec& option : group.options)
      if (!option.is_later() && !option.help.empty()) lines += option_lines(option);
    if (!lines.empty()) text += "\n" + group.title + ":\n" + lines;
  }
  text += "\nExamples:\n";
  for (const std::string& example : command.examples) text += "  " + wrapped(example, 6, 2) + "\n";
  return text;
}

std::string overview() {
  std::string text =
      "flux2: images with the FLUX.2 models\n\n"
      "Usage: flux2 COMMAND [options] [--] [arguments]\n"
      "       flux2 \"a prompt\"\n\nCommands:\n";
  for (const Command& command : commands()) text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  text +=
      "\nflux2 help COMMAND shows the options of a command.\n\nExamples:\n"
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
  if (run.positional.empty()) {
    run.console.result(overview());
    return 0;
  }
  const std::string& name = run.positional.front();
  const Command* command = find_command(name);
  if (!command && is_later_command(name)) fail(ErrorCode::InvalidArgument, "{} is not available yet in this version", name);
  if (!command) throw Error(ErrorCode::InvalidArgument, "unknown command " + name, "flux2 help lists them");
  const Command* action = run.positional.size() > 1 ? command->find_action(run.positional[1]) : nullptr;
  run.console.result(action ? help_for(*action, command) : help_for(*command));
  return 0;
}

}  // namespace flux2
