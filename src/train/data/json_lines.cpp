#include "train/data/json_lines.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/path_exists.h"
#include "base/text.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr size_t kListBytes = size_t{1} << 30;
constexpr std::string_view kControl = "control_path", kImagePrompt = "image_prompt_path";

std::string text_member(const Json& object, const std::string& key) {
  const Json& value = object[key];
  if (!value.is_string()) fail(ErrorCode::BadFile, "\"{}\" must be a text in quotes", printable(key));
  return value.get<std::string>();
}

// The number behind the name in a key such as control_path_0. The bare name is number 0; other keys have none.
std::optional<uint64_t> number_behind(std::string_view name, const std::string& key) {
  if (key == name) return 0;
  if (!key.starts_with(std::string(name) + "_")) return {};
  const std::string digits = key.substr(name.size() + 1);
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != digits.npos)
    fail(ErrorCode::BadFile, "\"{}\" must end in a number, like {}_0", printable(key), name);
  return std::stoull(digits);
}

JsonLine line_of(const Json& object, const fs::path& folder) {
  if (!object.is_object()) fail(ErrorCode::BadFile, "it must be an object with \"image_path\" and \"caption\"");
  const auto path_of = [&](const std::string& key) {
    const fs::path path = text_member(object, key);
    return path.is_relative() && !path_exists(path) && path_exists(folder / path) ? folder / path : path;
  };
  JsonLine line;
  const bool plain = object.contains("image_path");
  if (!plain && !object.contains("image_path_0")) fail(ErrorCode::BadFile, "\"image_path\" is missing");
  line.image = path_of(plain ? "image_path" : "image_path_0");
  if (object.contains("caption")) line.caption = text_member(object, "caption");
  const auto numbered = [&](std::string_view name) {
    std::multimap<uint64_t, fs::path> sorted;
    for (const auto& [key, value] : object.items())
      if (const auto number = number_behind(name, key)) sorted.emplace(*number, path_of(key));
    std::vector<fs::path> paths;
    for (auto& [number, path] : sorted) paths.push_back(std::move(path));
    return paths;
  };
  line.references = numbered(kControl);
  line.image_prompts = numbered(kImagePrompt);
  return line;
}

}  // namespace

std::vector<JsonLine> read_json_lines(const fs::path& file) {
  const std::string text = read_text_file(file, {.bytes = kListBytes});
  std::vector<JsonLine> lines;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    lines.push_back(in_context(fmt::format("{}, line {}", file.string(), number),
                               [&] { return line_of(parse_json(line), file.parent_path()); }));
    lines.back().number = number;
  }
  return lines;
}

}  // namespace flux2
