#include "cli/prompts.h"

#include <fmt/format.h>

#include <array>
#include <cctype>

#include "base/json.h"
#include "base/text.h"
#include "cli/standard_input.h"

namespace flux2 {

namespace {

// Short names as musubi-tuner's prompt files have them.
constexpr std::array<std::pair<std::string_view, const char*>, 10> kLineOptions = {{
    {"w", "width"},
    {"h", "height"},
    {"s", "steps"},
    {"d", "seed"},
    {"g", "guidance"},
    {"l", "cfg"},
    {"n", "negative"},
    {"o", "output"},
    {"ci", "input"},
    {"lora", "lora"},
}};

// Where the next " --w" begins; a dash between words or inside one belongs to the prompt.
size_t next_option(std::string_view line, size_t from) {
  for (size_t at = line.find("--", from); at != line.npos; at = line.find("--", at + 2)) {
    const bool word_begins = at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t';
    if (word_begins && at + 2 < line.size() && std::isalpha(static_cast<unsigned char>(line[at + 2]))) return at;
  }
  return line.npos;
}

PromptLine parse_line(std::string_view line, int number) {
  PromptLine parsed;
  size_t next = next_option(line, 0);
  parsed.prompt = trimmed(line.substr(0, next));
  while (next != line.npos) {
    const size_t start = next + 2, end = next_option(line, start);
    const std::string_view option = trimmed(line.substr(start, end == line.npos ? end : end - start));
    const size_t space = option.find_first_of(" \t");
    const std::string_view name = option.substr(0, space);
    const std::string value(space == option.npos ? std::string_view{} : trimmed(option.substr(space)));
    const std::string origin = fmt::format("--{} in line {}", name, number);
    const char* target = nullptr;
    for (const auto& [known, long_name] : kLineOptions)
      if (known == name) target = long_name;
    check(target != nullptr, "{}: a line knows --w --h --s --d --g --l --n --ci --o --lora", origin);
    check(!value.empty(), "{} needs a value", origin);
    Setting& setting = parsed.settings[target];
    if (name != "ci" && name != "lora") setting.values.clear();  // only references and adapters may be many
    setting.values.push_back(value);
    setting.origin = origin;
    next = end;
  }
  return parsed;
}

std::string text_from_standard_input() {
  std::string text = read_standard_input();
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace

std::vector<PromptLine> parse_prompt_file(std::string_view text) {
  std::vector<PromptLine> prompts;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == text.npos ? std::string_view{} : text.substr(end + 1);
    if (!line.empty() && !line.starts_with('#')) prompts.push_back(parse_line(line, number));
  }
  return prompts;
}

std::vector<PromptLine> read_prompts(const Invocation& run, bool optional) {
  if (run.positional.size() > 1)
    throw Error(ErrorCode::InvalidArgument, "unexpected argument \"" + run.positional[1] + "\"",
                "put the whole prompt in quotes");
  const Setting* option = run.settings.find("prompt");
  const Setting* file = run.settings.find("prompt-file");
  const bool from_picture = option && !option->origin.starts_with("--prompt");  // --from: any other prompt replaces it
  const int given = (option && !from_picture) + (file != nullptr) + !run.positional.empty();
  check(given <= 1, "the prompt is given more than once: as argument, --prompt or --prompt-file");
  if (file) {
    auto prompts = in_context(file->values.back(), [&] {
      return parse_prompt_file(file->values.back() == "-" ? text_from_standard_input()
                                                          : read_text_file(file->values.back()));
    });
    check(!prompts.empty(), "{} holds no prompt", file->values.back());
    return prompts;
  }
  std::string prompt = !run.positional.empty() ? run.positional.front() : option ? option->values.back() : "";
  if (prompt == "-") prompt = text_from_standard_input();
  // An empty prompt that was asked for is a prompt; none at all is a mistake.
  if (given == 0 && prompt.empty() && !optional)
    throw Error(ErrorCode::InvalidArgument, "there is no prompt", "flux2 generate \"a red fox in the snow\"");
  return {{std::move(prompt), {}, given == 0}};
}

}  // namespace flux2
