#include "app/prompts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "app/adapters.h"
#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

struct LineOption {
  std::string_view name;
  const char* option;  // of the command line
  bool repeats = false;
};

// Short names as musubi-tuner's prompt files have them, and our own.
constexpr std::array<LineOption, 14> kLineOptions = {{
    {"w", "width"},
    {"h", "height"},
    {"s", "steps"},
    {"d", "seed"},
    {"g", "guidance"},
    {"l", "cfg"},
    {"n", "negative"},
    {"o", "output"},
    {"ci", "input", true},
    {"lora", "lora", true},
    {"ip", "image-prompt", true},  // as in the sample prompts of training
    {"image-prompt", "image-prompt", true},
    {"image-prompt-adapter", "image-prompt-adapter"},
    {"image-prompt-encoder", "image-prompt-encoder"},
}};

// Names of several words may have underscores as well, as on the command line.
const LineOption& line_option(std::string name, const std::string& origin) {
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<std::string> names;
  for (const LineOption& known : kLineOptions) {
    if (known.name == name) return known;
    names.push_back(fmt::format("--{}", known.name));
  }
  throw Error(ErrorCode::InvalidArgument, fmt::format("{}: unknown option; a line may have {}", origin, fmt::join(names, ", ")));
}

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
    const LineOption& known = line_option(std::string(name), origin);
    check(!value.empty(), "{} needs a value", origin);
    Setting& setting = parsed.settings[known.option];
    if (!known.repeats) setting.values.clear();  // the last one counts
    setting.values.push_back(value);
    setting.origin = origin;
    next = end;
  }
  return parsed;
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

void take_lora_tags(std::vector<PromptLine>& prompts, const AppContext& context) {
  for (PromptLine& line : prompts) {
    std::vector<std::string> found;
    line.prompt = without_lora_tags(line.prompt, found);
    if (found.empty()) continue;
    Setting& own = line.settings.try_emplace("lora", Setting{{}, "<lora:…>"}).first->second;
    for (const std::string& tag : found) own.values.push_back(text_of(adapter_by_name(tag, "<lora:…> in the prompt", context)));
  }
}

}  // namespace flux2
