#include "cli/arguments.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"

namespace flux2 {

namespace {

// --num_steps=4 → --num-steps=4, for options we know: anything else may be a value.
std::string with_dashes(const std::string& word, const std::set<std::string>& names) {
  if (!word.starts_with("--")) return word;
  const size_t end = std::min(word.find('='), word.size());
  std::string name = word.substr(2, end - 2);
  std::replace(name.begin(), name.end(), '_', '-');
  return names.contains(name) ? "--" + name + word.substr(end) : word;
}

// The first command that has an option of that name.
std::string command_with(const std::string& typed) {
  if (!typed.starts_with("--")) return {};
  for (const Command& command : commands())
    for (const OptionGroup& group : command.options())
      for (const OptionSpec& option : group.options)
        if (!option.is_later() && "--" + option.name == typed) return command.name;
  return {};
}

void refuse_unknown(const std::vector<std::string>& rest, const std::vector<OptionGroup>& groups) {
  for (const std::string& word : rest) {
    if (word.size() < 2 || word[0] != '-' || word == "--") continue;
    std::vector<std::string> names;
    for (const OptionGroup& group : groups)
      for (const OptionSpec& option : group.options)
        if (!option.is_later()) names.push_back("--" + option.name);
    const std::string typed = word.substr(0, word.find('='));
    const std::string near = nearest_word(typed, names);
    if (const std::string command = command_with(typed); !command.empty())
      throw Error(ErrorCode::InvalidArgument, "unknown option " + typed,
                  fmt::format("{} is an option of `flux2 {}`", typed, command));
    throw Error(ErrorCode::InvalidArgument, "unknown option " + typed,
                near.empty() ? "see --help; put text that starts with a dash after --" : "did you mean " + near + "?");
  }
}

void refuse_later(const Field& field, const Arguments::Given& given) {
  const bool harmless = std::all_of(given.values.begin(), given.values.end(), [&](const std::string& value) {
    return std::find(field.harmless.begin(), field.harmless.end(), value) != field.harmless.end();
  });
  if (harmless) return;
  const bool by_value = !field.harmless.empty();
  fail(ErrorCode::InvalidArgument, "{}{} is not available yet in this version", given.spelled,
       by_value ? " " + given.values.back() : "");
}

// --lora_weight a.safetensors b.safetensors → --lora-weight a.safetensors --lora-weight b.safetensors
std::vector<std::string> without_lists(const std::vector<std::string>& words, const std::set<std::string>& names) {
  std::vector<std::string> single;
  const ListOption* list = nullptr;  // whose first value was seen
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      single.insert(single.end(), words.begin() + static_cast<ptrdiff_t>(i), words.end());
      break;
    }
    if (list && list->continues(words[i])) single.push_back("--" + list->name);
    else list = nullptr;
    single.push_back(words[i]);
    for (const ListOption& option : list_options())
      if (words[i] == "--" + option.name && names.contains(option.name) && i + 1 < words.size()) {
        single.push_back(words[++i]);
        list = &option;
        break;
      }
  }
  return single;
}

// An option with an optional value, given without one, means the value `newest`.
std::vector<std::string> with_optional_values(std::vector<std::string> words, const std::vector<OptionGroup>& groups) {
  for (const OptionGroup& group : groups)
    for (const OptionSpec& option : group.options) {
      if (!option.value.starts_with('[')) continue;
      for (size_t i = 0; i < words.size() && words[i] != "--"; ++i)
        if (words[i] == "--" + option.name && (i + 1 == words.size() || words[i + 1].starts_with('-'))) words[i] += "=newest";
    }
  return words;
}

// CLI11 reads the argument "[a, b]" as a list of two. A NUL behind it, which no word of a command line can contain, prevents
// this.
void keep_brackets(std::vector<std::string>& words) {
  for (std::string& word : words)
    if (word.starts_with('[') && word.ends_with(']')) word += '\0';
}

std::vector<std::string> as_given(std::vector<std::string> words) {
  for (std::string& word : words)
    if (word.ends_with('\0')) word.pop_back();
  return words;
}

// What musubi-tuner says about its adapters in lists of their own becomes FILE:STRENGTH:LAYERS. An adapter without a strength in
// the list has strength 1.
void complete_adapters(Arguments& arguments, const std::map<ForeignOption::Piece, Arguments::Given>& pieces) {
  if (pieces.empty()) return;
  const auto adapters = arguments.options.find("lora");
  for (const auto& [piece, given] : pieces) {
    const bool paired = adapters != arguments.options.end() && adapters->second.spelled == "--lora-weight";
    if (!paired || given.values.size() > adapters->second.values.size())
      throw Error(
          ErrorCode::InvalidArgument,
          fmt::format("{} has {} values, but --lora-weight has {}", given.spelled, given.values.size(),
                      paired ? adapters->second.values.size() : 0),
          "the first value belongs to the first file of --lora-weight; --lora FILE:STRENGTH:LAYERS gives all three together");
  }
  const auto value = [&](ForeignOption::Piece piece, size_t i) -> std::string {
    const auto given = pieces.find(piece);
    return given != pieces.end() && i < given->second.values.size() ? given->second.values[i] : "";
  };
  const bool strengths = pieces.contains(ForeignOption::Strength);
  for (size_t i = 0; i < adapters->second.values.size(); ++i) {
    std::string strength = value(ForeignOption::Strength, i), layers = value(ForeignOption::Include, i);
    if (strengths && strength.empty()) strength = "1";
    if (const std::string leave = value(ForeignOption::Exclude, i); !leave.empty())
      layers += (layers.empty() ? "!" : "&!") + leave;
    std::string& text = adapters->second.values[i];
    if (!strength.empty() || !layers.empty()) text += ":" + strength;
    if (!layers.empty()) text += ":" + layers;
  }
}

}  // namespace

Arguments parse_arguments(const std::vector<OptionGroup>& groups, const std::vector<ForeignOption>& foreign,
                          std::vector<std::string> words) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  const CLI::callback_t keep = [](const CLI::results_t&) { return true; };

  std::set<std::string> names, repeatable;
  std::vector<std::pair<const OptionSpec*, CLI::Option*>> own;
  std::vector<std::pair<const ForeignOption*, CLI::Option*>> others;
  for (const OptionGroup& group : groups)
    for (const OptionSpec& option : group.options) {
      names.insert(option.name);
      if (option.repeatable) repeatable.insert(option.name);
      const std::string spelling = "--" + option.name + (option.letter ? std::string(",-") + option.letter : "") +
                                   (option.also.empty() ? "" : "," + option.also);
      CLI::Option* added =
          option.value.empty() ? app.add_flag(spelling) : app.add_option(spelling, keep)->expected(1)->take_all();
      own.emplace_back(&option, added);
    }
  for (const ForeignOption& option : foreign) {
    if (!names.insert(option.name).second) continue;  // this command has an option of that name
    CLI::Option* added = option.values == 0 ? app.add_flag("--" + option.name)
                                            : app.add_option("--" + option.name, keep)->expected(option.values)->take_all();
    others.emplace_back(&option, added);
  }
  Arguments arguments;
  app.add_option("arguments", arguments.positional);

  for (std::string& word : words) {
    if (word == "--") break;
    word = with_dashes(word, names);
  }
  words = with_optional_values(without_lists(words, names), groups);
  keep_brackets(words);
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(words);
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string text = e.what(), name = text.substr(0, text.find(':'));
    throw Error(ErrorCode::InvalidArgument, name + " needs a value", "see --help");
  } catch (const CLI::ParseError& e) {
    throw Error(ErrorCode::InvalidArgument, e.what(), "see --help");
  }
  refuse_unknown(app.remaining(), groups);
  arguments.positional = as_given(std::move(arguments.positional));

  for (const auto& [option, parsed] : own) {
    if (parsed->count() == 0) continue;
    auto& given = arguments.options[option->name];
    given.spelled = "--" + option->name;
    given.values = option->value.empty() ? std::vector<std::string>(parsed->count(), "true") : as_given(parsed->results());
    if (!option->repeatable) given.values = {given.values.back()};
  }
  std::map<ForeignOption::Piece, Arguments::Given> pieces;
  for (const auto& [option, parsed] : others) {
    if (parsed->count() == 0 || option->target.empty()) continue;
    if (option->piece != ForeignOption::Whole) {
      pieces[option->piece] = {as_given(parsed->results()), "--" + option->name};
      continue;
    }
    if (arguments.options.contains(option->target)) continue;  // our own name for it wins
    const auto results = as_given(parsed->results());
    auto& given = arguments.options[option->target];
    given.spelled = "--" + option->name;
    if (option->translate) given.values = {option->translate(results)};
    else if (repeatable.contains(option->target)) given.values = results;
    else given.values = {results.back()};
  }
  complete_adapters(arguments, pieces);
  for (const auto& [option, parsed] : own)
    if (const auto given = arguments.options.find(option->name); option->is_later() && given != arguments.options.end())
      refuse_later(*option->field, given->second);
  return arguments;
}

SettingLayer layer_of(const Arguments& arguments) {
  SettingLayer layer;
  for (const auto& [name, given] : arguments.options) layer[name] = {given.values, given.spelled};
  return layer;
}

}  // namespace flux2
