#include "cli/shell/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/shell/words.h"
#include "pipeline/picture_size.h"

namespace flux2 {

namespace {

constexpr size_t kMostUndone = 200;

// Keys that are spelled otherwise than the option they stand for.
constexpr std::array<std::pair<const char*, const char*>, 7> kOtherNames = {{
    {"num_steps", "steps"},
    {"inputs", "input"},
    {"input_images", "input"},
    {"match_image_size", "match"},
    {"upsample_prompt_mode", "upsample"},
    {"show_steps", "show-steps"},
    {"autorun", "autorun"},
}};

const OptionSpec* generate_option(const std::string& name) {
  static const std::vector<OptionGroup> groups = generate_options();
  for (const OptionGroup& group : groups)
    for (const OptionSpec& option : group.options)
      if (option.name == name) return &option;
  return nullptr;
}

// Settings of a run rather than of a picture have no place in a session that goes on.
bool fits_shell(const OptionSpec& option) {
  for (const char* other :
       {"prompt-file", "dry-run", "trace", "json", "help", "help-all", "repeat", "from", "remix", "log-file", "save-merged"})
    if (option.name == other) return false;
  return true;
}

// "a.png,b.png", "a.png b.png", "$1 b.png"
std::vector<std::string> picture_list(const std::string& value, const ShellSettings::PicturePath& picture_path,
                                      std::vector<std::string>& missing) {
  std::string spaced = value;
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  std::error_code ignored;
  if (std::filesystem::is_regular_file(value, ignored)) return {value};  // a name with blanks or commas
  std::vector<std::string> files;
  for (const std::string& word : shell_words(spaced)) {
    const std::string path = word.starts_with('$') ? picture_path(word) : word;
    if (std::filesystem::is_regular_file(path, ignored)) files.push_back(path);
    else missing.push_back(path);
  }
  return files;
}

std::vector<std::string> between_commas(const std::string& value) {
  std::vector<std::string> pieces;
  for (size_t start = 0; start <= value.size();) {
    const size_t end = std::min(value.find(',', start), value.size());
    if (end > start) pieces.push_back(value.substr(start, end - start));
    start = end + 1;
  }
  return pieces;
}

// "$1:0.5" → "made.png:0.5"
std::string with_picture_path(const std::string& text, const ShellSettings::PicturePath& picture_path) {
  if (!text.starts_with('$')) return text;
  const size_t colon = std::min(text.find(':'), text.size());
  return picture_path(text.substr(0, colon)) + text.substr(colon);
}

// BFL's shell counts references from 0.
std::string counted_from_one(const std::string& value) {
  const bool number = !value.empty() && value.size() < 6 && value.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::to_string(std::stoi(value) + 1) : value;
}

}  // namespace

std::string ShellSettings::option_of(const std::string& key) {
  for (const auto& [other, option] : kOtherNames)
    if (key == other) return option;
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  const OptionSpec* option = generate_option(name);
  if (option && option->is_later()) fail(ErrorCode::InvalidArgument, "{} is not available yet in this version", key);
  if (option && fits_shell(*option)) return name;
  const std::string near = nearest_word(key, keys());
  throw Error(ErrorCode::InvalidArgument, fmt::format("unknown key \"{}\"", key),
              near.empty() ? "show lists them; to use the line as a prompt: prompt=\"…\"" : "did you mean " + near + "?");
}

const std::vector<std::string>& ShellSettings::keys() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = {"autorun", "inputs"};
    for (const OptionGroup& group : generate_options())
      for (const OptionSpec& option : group.options) {
        if (option.is_later() || option.help.empty() || !fits_shell(option) || option.name == "input" ||
            group.title == "Messages")
          continue;
        std::string name = option.name;
        std::replace(name.begin(), name.end(), '-', '_');
        list.push_back(name);
      }
    std::sort(list.begin(), list.end());
    return list;
  }();
  return names;
}

std::string ShellSettings::text(const std::string& option) const {
  const auto found = layer_.find(option);
  return found == layer_.end() ? "" : fmt::format("{}", fmt::join(found->second.values, ","));
}

SettingLayer ShellSettings::changed(SettingLayer layer, const std::string& key, const std::string& value,
                                    const PicturePath& picture_path, std::vector<std::string>& missing) {
  const std::string option = option_of(key);
  if (option == "prompt") layer.erase("rewritten-prompt");  // it belongs to another prompt
  const auto set = [&](const std::string& name, const std::string& text) {
    layer[name] = {{text}, name == "prompt" ? "--prompt" : key};  // as an option, a prompt may hold choices
  };
  const bool means_none = option == "upsample";  // where none is a value: the configuration may have another
  if (value.empty() || (value == "none" && !means_none)) {
    layer.erase(option);
    if (option == "size") layer.erase("width"), layer.erase("height");
  } else if (option == "size") {
    const PictureSize size = parse_picture_size(value);
    set("width", std::to_string(size.width));
    set("height", std::to_string(size.height));
  } else if (option == "input") {
    const auto files = picture_list(value, picture_path, missing);
    if (files.empty()) layer.erase(option);
    else layer[option] = {files, key};
  } else if (option == "lora") {
    layer[option] = {between_commas(value), key};
  } else if (option == "image-prompt") {
    Setting& prompts = layer[option] = {between_commas(value), key};
    for (std::string& prompt : prompts.values) prompt = with_picture_path(prompt, picture_path);
  } else {
    set(option, key == "match_image_size" ? counted_from_one(value) : value);
  }
  return layer;
}

void ShellSettings::replace(SettingLayer layer) {
  before_.push_back(std::exchange(layer_, std::move(layer)));
  if (before_.size() > kMostUndone) before_.erase(before_.begin());
}

bool ShellSettings::undo() {
  if (before_.empty()) return false;
  layer_ = std::move(before_.back());
  before_.pop_back();
  return true;
}

}  // namespace flux2
