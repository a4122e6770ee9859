#include "cli/completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "cli/config_keys.h"
#include "cli/topics.h"
#include "hub/registry/starter.h"
#include "hub/variants.h"

namespace flux2 {

namespace {

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Published models, which are known by name although they are not here.
std::vector<std::string> variant_ids() {
  std::vector<std::string> ids;
  for (const Variant& variant : variants()) ids.push_back(variant.id);
  return ids;
}

std::vector<std::string> starter_names() {
  std::vector<std::string> names;
  for (const Starter& starter : starters()) names.push_back(starter.name);
  return names;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  return names;
}

// "encode|decode FILE" → encode, decode
std::vector<std::string> actions_in(const std::string& usage) {
  const std::string first = usage.substr(0, usage.find(' '));
  if (!contains(first, "|")) return {};
  std::vector<std::string> words(1);
  for (const char c : first) {
    if (c == '|') words.emplace_back();
    else if (std::islower(static_cast<unsigned char>(c)) || c == '-') words.back() += c;
    else return {};
  }
  return words;
}

struct Named {
  std::string name;  // "models install"
  const Command* command;
  const Command* parent;
};

std::vector<Named> all_commands() {
  std::vector<Named> all;
  for (const Command& command : commands()) {
    all.push_back({command.name, &command, nullptr});
    if (command.actions)
      for (const Command& action : command.actions()) all.push_back({command.name + " " + action.name, &action, &command});
  }
  return all;
}

std::vector<OptionSpec> listed_options(const Command& command) {
  std::vector<OptionSpec> all;
  for (const OptionGroup& group : command.options())
    for (const OptionSpec& option : group.options)
      if (option.is_listed()) all.push_back(option);
  return all;
}

// ---- bash

std::string bash_assignments(const Completed& c) {
  std::string text;
  if (!c.words.empty()) text += fmt::format(" words='{}'", fmt::join(c.words, " "));
  if (!c.models.empty()) text += " models=" + c.models;
  if (c.files) text += " files=1";
  if (c.folders) text += " folders=1";
  return text.empty() ? " :" : text;
}

std::string bash_pattern(const OptionSpec& option) {
  return (option.letter ? fmt::format("-{}|", option.letter) : "") + "--" + option.name;
}

// What follows an option, by its name; most mean the same in every command.
std::map<std::string, Completed> usual_values() {
  std::map<std::string, Completed> usual;
  for (const Named& named : all_commands())
    for (const OptionSpec& option : listed_options(*named.command))
      if (!option.value.empty()) usual.try_emplace(bash_pattern(option), values_of(option));
  return usual;
}

// ---- zsh

std::string zsh_escaped(const std::string& text, const char* special) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (std::string_view(special).find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const Completed& c) {
  const bool files = c.files || c.folders;
  std::string text;
  if (!c.words.empty() || !c.models.empty())
    text = fmt::format(" _flux2_values {} {}{}", c.models.empty() ? "-" : c.models, files ? (c.files ? "files" : "folders") : "-",
                       c.words.empty() ? "" : " " + fmt::format("{}", fmt::join(c.words, " ")));
  else if (c.files) text = "_files";
  else if (c.folders) text = "_files -/";
  return zsh_escaped(text, ":");  // a blank in front keeps _arguments from adding arguments of its own
}

std::string zsh_option(const OptionSpec& o) {
  const std::string help = "[" + zsh_escaped(o.help, "[]\\") + "]";
  const std::string value = o.value.empty() ? "" : ":" + zsh_escaped(o.value, ":\\") + ":" + zsh_action(values_of(o));
  std::string text;
  if (!o.letter) text = fmt::format("'{}--{}{}{}{}'", o.repeatable ? "*" : "", o.name, o.value.empty() ? "" : "=", help, value);
  else if (o.repeatable)
    text = fmt::format("'*-{0}{1}{2}' '*--{3}{4}{1}{2}'", o.letter, help, value, o.name, o.value.empty() ? "" : "=");
  else
    text = fmt::format("'(-{0} --{1})-{0}{2}{3}' '(-{0} --{1})--{1}{4}{2}{3}'", o.letter, o.name, help, value,
                       o.value.empty() ? "" : "=");
  return text;
}

std::string zsh_function_name(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '_');
  return "_flux2_" + name;
}

std::string zsh_function(const Named& named) {
  std::string text = zsh_function_name(named.name) + "() {\n";
  const CompletedArguments arguments = arguments_of(*named.command, named.parent);
  text += "  _arguments -s";
  for (const OptionSpec& o : listed_options(*named.command)) text += " \\\n    " + zsh_option(o);
  if (!arguments.first.empty()) text += fmt::format(" \\\n    '1:argument:{}'", zsh_action(arguments.first));
  if (!arguments.others.empty()) text += fmt::format(" \\\n    '*:argument:{}'", zsh_action(arguments.others));
  return text + "\n}\n\n";
}

std::string zsh_described(const std::vector<Command>& list) {
  std::string text;
  for (const Command& command : list) text += fmt::format("    '{}:{}'\n", command.name, zsh_escaped(command.summary, ":\\"));
  return text;
}

// ---- fish

std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_values(const Completed& c) {
  std::string words = fmt::format("{}", fmt::join(c.words, " "));
  if (!c.models.empty()) words += fmt::format("{}(__flux2_models {})", words.empty() ? "" : " ", c.models);
  if (c.folders && !c.files) words += (words.empty() ? "" : " ") + std::string("(__fish_complete_directories)");
  return (c.files ? " -F" : " -f") + (words.empty() ? "" : " -a " + fish_quoted(words));
}

std::string fish_option(const std::string& condition, const OptionSpec& o) {
  std::string text = "complete -c flux2 -n " + fish_quoted(condition) + " -l " + o.name;
  if (o.letter) text += fmt::format(" -s {}", o.letter);
  if (!o.value.empty()) text += " -r" + fish_values(values_of(o));
  return text + " -d " + fish_quoted(o.help) + "\n";
}

}  // namespace

Completed values_of(const OptionSpec& option) {
  static const std::map<std::string, std::string> model_types = {
      {"model", "main"},          {"into", "main"}, {"dit", "main"}, {"vae", "vae"}, {"text-encoder", "text_encoder"},
      {"tokenizer", "tokenizer"}, {"lora", "lora"}};
  if (option.value.empty()) return {};
  Completed c{.words = option.words};
  if (const auto type = model_types.find(option.name); type != model_types.end()) c.models = type->second;
  if (option.name == "model") c.words = variant_ids();
  c.files = contains(option.value, "FILE") || contains(option.value, "PATH") || option.name == "into";
  c.folders = contains(option.value, "FOLDER");
  return c;
}

CompletedArguments arguments_of(const Command& command, const Command* parent) {
  CompletedArguments found;
  if (command.actions) {
    for (const Command& action : command.actions()) found.first.words.push_back(action.name);
    return found;
  }
  found.first.words = actions_in(command.arguments);
  Completed& others = found.others;
  others.files =
      contains(command.arguments, "FILE") || contains(command.arguments, "IMAGE") || contains(command.arguments, "PATH");
  others.folders = contains(command.arguments, "FOLDER");
  if (parent && contains(command.arguments, "NAME|KEY")) others.models = "any";
  if (parent && contains(command.arguments, "SOURCE")) others.words = starter_names(), others.files = true;
  if (parent && command.name == "starter") others.words = starter_names();
  if (command.name == "config") others.words = config_keys();
  if (command.name == "help" || command.name == "man") {
    found.first.words = command_names();
    if (command.name == "help")
      for (const Topic& topic : topics())
        if (!find_command(topic.name)) found.first.words.push_back(topic.name);
    for (const Command& c : commands())
      if (c.actions)
        for (const Command& action : c.actions()) others.words.push_back(action.name);
    others.folders = false;
  }
  if (found.first.empty()) found.first = others;
  return found;
}

std::string bash_completion() {
  const auto usual = usual_values();
  std::string by_command, usual_cases;
  for (const auto& [pattern, values] : usual) usual_cases += fmt::format("    {}){} ;;\n", pattern, bash_assignments(values));
  for (const Named& named : all_commands()) {
    std::string options, own_cases;
    for (const OptionSpec& o : listed_options(*named.command)) {
      options += (options.empty() ? "" : " ") + std::string("--") + o.name + (o.letter ? fmt::format(" -{}", o.letter) : "");
      const bool other = o.value.empty() || usual.at(bash_pattern(o)) != values_of(o);
      // A flag here may share its letter or name with an option of another command that has a value.
      if (o.value.empty()) own_cases += fmt::format("        {}) is_flag=1 ;;\n", bash_pattern(o));
      else if (other)
        own_cases +=
            fmt::format("        {}) words= models= files= folders={} ;;\n", bash_pattern(o), bash_assignments(values_of(o)));
    }
    const CompletedArguments arguments = arguments_of(*named.command, named.parent);
    std::string name = named.name;
    std::replace(name.begin(), name.end(), ' ', ':');
    by_command += fmt::format("    {})\n      options='{}'\n", name, options);
    if (!own_cases.empty()) by_command += "      case $before in\n" + own_cases + "      esac\n";
    by_command += fmt::format("      if [[ $is_argument ]]; then\n        if [[ $is_first ]]; then{}; else{}; fi\n      fi ;;\n",
                              bash_assignments(arguments.first), bash_assignments(arguments.others));
  }
  std::string aliases, with_actions;
  for (const Command& command : commands()) {
    for (const std::string& alias : command.aliases) aliases += fmt::format("    {}) command={} ;;\n", alias, command.name);
    if (!command.actions) continue;
    std::string names;
    for (const Command& action : command.actions()) {
      names += (names.empty() ? "" : "|") + action.name;
      for (const std::string& alias : action.aliases)
        aliases += fmt::format("    {}:{}) command={}:{} ;;\n", command.name, alias, command.name, action.name);
    }
    with_actions += fmt::format("    {}) command=$command:$action ;;\n", command.name);
  }
  return fmt::format(
      R"sh(# bash completion for flux2, generated by `flux2 completions bash`

_flux2() {{
  local line=${{COMP_LINE:0:COMP_POINT}} typed=${{COMP_WORDS[COMP_CWORD]}} name
  local word=${{line##*[[:space:]]}} before command action options= words= models= files= folders= is_flag= is_argument= is_first=
  COMPREPLY=()
  [[ $typed == [:=]* ]] && typed=  # bash splits words at : and =
  before=${{line%"$word"}}
  before=${{before%"${{before##*[![:space:]]}}"}}
  before=${{before##*[[:space:]]}}
  if [[ $word == --*=* ]]; then
    before=${{word%%=*}} word=${{word#*=}}
  fi
  command=${{COMP_WORDS[1]}}
  if (( COMP_CWORD == 1 )); then
    [[ $word == -* ]] && words='--help --help-all --version' || words='{commands}'
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    return
  fi
  action=${{COMP_WORDS[2]}}
  if (( COMP_CWORD == 2 )); then action=; fi
  [[ $before == "${{COMP_WORDS[COMP_CWORD-1]}}" ]] && (( COMP_CWORD == 2 )) && is_first=1
  case $command in
{with_actions}  esac
  case $command in
{aliases}  esac
  command=${{command%:}}
  [[ $command == *:* ]] && (( COMP_CWORD == 3 )) && is_first=1
  [[ $before == -* ]] || is_argument=1
  case $before in
{usual_cases}    -*) is_flag=1 ;;
  esac
  case $command in
{by_command}    *) options='--help --help-all' ;;
  esac
  if [[ $is_flag ]]; then
    words= models= files= folders=
  fi
  if [[ $word == -* && ( $is_argument || $is_flag ) ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
    return
  fi
  if [[ $is_flag ]]; then files=1; fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ $models ]]; then
    [[ $models == any ]] && models= || models="--type $models"
    compopt -o filenames 2>/dev/null  # bash then quotes blanks, quotes and dollars
    while IFS= read -r name; do  # compgen -W would run a $(command) in a name
      [[ $name == "$word"* ]] && COMPREPLY+=("$name")
    done < <("${{COMP_WORDS[0]}}" models list --names $models 2>/dev/null)
  fi
  if [[ $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$word")
  elif [[ $folders ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -d -- "$word")
  fi
  local seen=${{word%"$typed"}}  # which bash keeps as it is
  COMPREPLY=("${{COMPREPLY[@]#"$seen"}}")
}}
complete -F _flux2 flux2
)sh",
      fmt::arg("commands", fmt::join(command_names(), " ")), fmt::arg("with_actions", with_actions), fmt::arg("aliases", aliases),
      fmt::arg("usual_cases", usual_cases), fmt::arg("by_command", by_command));
}

std::string zsh_completion() {
  std::string text =
      "#compdef flux2\n# zsh completion for flux2, generated by `flux2 completions zsh`\n\n"
      "# _flux2_values MODEL_TYPE files|folders|- WORDS…\n"
      "_flux2_values() {\n"
      "  local type=$1 paths=$2\n"
      "  shift 2\n"
      "  local -a values=(\"$@\")\n"
      "  if [[ $type != - ]]; then\n"
      "    local -a of_type=(--type $type)\n"
      "    [[ $type == any ]] && of_type=()\n"
      "    values+=(${(f)\"$(_call_program models flux2 models list --names $of_type 2>/dev/null)\"})\n"
      "  fi\n"
      "  compadd -a values\n"
      "  [[ $paths == files ]] && _files\n"
      "  [[ $paths == folders ]] && _files -/\n"
      "  return 0\n"
      "}\n\n";
  std::string cases;
  for (const Named& named : all_commands()) {
    if (named.command->actions) continue;
    text += zsh_function(named);
  }
  for (const Command& command : commands()) {
    std::string patterns = command.name;
    for (const std::string& alias : command.aliases) patterns += "|" + alias;
    cases += fmt::format("    {}) {} ;;\n", patterns, zsh_function_name(command.name));
    if (!command.actions) continue;
    std::string action_cases;
    for (const Command& action : command.actions()) {
      std::string names = action.name;
      for (const std::string& alias : action.aliases) names += "|" + alias;
      action_cases += fmt::format("    {}) {} ;;\n", names, zsh_function_name(command.name + " " + action.name));
    }
    text += fmt::format(
        "{0}() {{\n  local -a actions=(\n{1}  )\n  if (( CURRENT == 2 )); then\n    _describe action actions\n    return\n  fi\n"
        "  shift words\n  (( CURRENT-- ))\n  case $words[1] in\n{2}  esac\n}}\n\n",
        zsh_function_name(command.name), zsh_described(command.actions()), action_cases);
  }
  return text + "_flux2() {\n  local -a commands=(\n" + zsh_described(commands()) +
         "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  shift words\n  (( CURRENT-- "
         "))\n"
         "  case $words[1] in\n" +
         cases + "  esac\n}\n\n_flux2 \"$@\"\n";
}

std::string fish_completion() {
  std::string text =
      "# fish completion for flux2, generated by `flux2 completions fish`\n\n"
      "# Whether the words after flux2 begin with these; with -x there are no others.\n"
      "function __flux2_at\n"
      "    set -l words (commandline -opc)\n"
      "    set -e words[1]\n"
      "    set -l exactly no\n"
      "    if test \"$argv[1]\" = -x\n"
      "        set exactly yes\n"
      "        set -e argv[1]\n"
      "    end\n"
      "    set -l n (count $argv)\n"
      "    test (count $words) -ge $n; or return 1\n"
      "    test $exactly = no -o (count $words) -eq $n; or return 1\n"
      "    test $n -eq 0; or test \"$words[1..$n]\" = \"$argv\"\n"
      "end\n\n"
      "function __flux2_models\n"
      "    if test \"$argv[1]\" = any\n"
      "        flux2 models list --names 2>/dev/null\n"
      "    else\n"
      "        flux2 models list --names --type $argv[1] 2>/dev/null\n"
      "    end\n"
      "end\n\n"
      "complete -c flux2 -f\n";
  for (const Command& command : commands())
    text += fmt::format("complete -c flux2 -n '__flux2_at -x' -a {} -d {}\n", command.name, fish_quoted(command.summary));
  for (const Named& named : all_commands()) {
    if (named.command->actions) {
      for (const Command& action : named.command->actions())
        text += fmt::format("complete -c flux2 -n '__flux2_at -x {}' -a {} -d {}\n", named.name, action.name,
                            fish_quoted(action.summary));
      continue;
    }
    const std::string condition = "__flux2_at " + named.name;
    const CompletedArguments arguments = arguments_of(*named.command, named.parent);
    if (!arguments.first.empty())
      text += "complete -c flux2 -n " + fish_quoted("__flux2_at -x " + named.name) + fish_values(arguments.first) + "\n";
    if (!arguments.others.empty() && !(arguments.others == arguments.first))
      text += "complete -c flux2 -n " + fish_quoted(condition + "; and not __flux2_at -x " + named.name) +
              fish_values(arguments.others) + "\n";
    else if (!arguments.others.empty() && arguments.others.files)
      text += "complete -c flux2 -n " + fish_quoted(condition) + " -F\n";
    for (const OptionSpec& o : listed_options(*named.command)) text += fish_option(condition, o);
  }
  return text;
}

int run_completions(Invocation& run) {
  const std::string shell = run.positional.empty() ? "" : run.positional[0];
  check(run.positional.size() <= 1, "completions are printed for one shell, not for {}", run.positional.size());
  if (shell == "bash") run.console.result(bash_completion());
  else if (shell == "zsh") run.console.result(zsh_completion());
  else if (shell == "fish") run.console.result(fish_completion());
  else
    throw Error(ErrorCode::InvalidArgument, shell.empty() ? "the shell is missing" : "unknown shell " + shell,
                Hint("use one of: bash, zsh, fish"));
  return 0;
}

}  // namespace flux2
