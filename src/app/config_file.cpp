#include "app/config_file.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "record/request_fields.h"

namespace flux2 {

namespace {

bool is_header(std::string_view line, std::string_view section) {
  line = trimmed(line.substr(0, line.find('#')));
  return line.starts_with('[') && line.ends_with(']') && trimmed(line.substr(1, line.size() - 2)) == section;
}

bool sets(std::string_view line, std::string_view key) {
  const size_t equals = line.find('=');
  if (equals == line.npos) return false;
  std::string_view name = trimmed(line.substr(0, equals));
  if (name.size() >= 2 && name.front() == '"' && name.back() == '"') name = name.substr(1, name.size() - 2);
  return name == key;
}

bool project_may_set(const std::string& key) {
  if (key.starts_with("styles.")) return true;  // templates of prompts
  const auto& fields = request_fields();
  return std::any_of(fields.begin(), fields.end(),
                     [&](const Field& f) { return f.project != Field::Never && config_key(f) == key; });
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text = end == text.npos ? std::string_view{} : text.substr(end + 1);
  }
  return lines;
}

}  // namespace

const std::string* ConfigFile::find(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() || found->second.empty() ? nullptr : &found->second.front();
}

ConfigFile read_config(const std::filesystem::path& path, const Log& log) {
  ConfigFile file{path, {}};
  std::error_code ignored;
  if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) return file;
  if (!toml_available()) {
    log.warn("{} is not read: this build has no TOML reader", path.string());
    return file;
  }
  if (std::filesystem::file_size(path, ignored) == 0) return file;
  file.values = in_context(path.string(), [&] { return parse_toml(read_text_file(path)); });
  return file;
}

ConfigFile read_project_config(const std::filesystem::path& path, const Log& log) {
  ConfigFile file = read_config(path, log);
  file.is_project = true;
  std::erase_if(file.values, [&](const auto& entry) {
    if (project_may_set(entry.first)) return false;
    file.refused.push_back(entry.first);
    return true;
  });
  return file;
}

std::string edit_toml(std::string_view text, std::string_view section, std::string_view key, std::string_view literal) {
  std::vector<std::string> lines = lines_of(text), result;
  const std::string entry = std::string(key) + " = " + std::string(literal);
  bool inside = false, seen_section = false, done = literal.empty();
  size_t insert_at = 0;  // after the last line of the section that is not blank
  for (std::string& line : lines) {
    const std::string_view content = trimmed(line);
    if (content.starts_with('[')) {
      inside = is_header(line, section);
      seen_section |= inside;
    } else if (inside && sets(line, key)) {
      if (literal.empty() || done) continue;
      line = entry;
      done = true;
    }
    result.push_back(line);
    if (inside && !trimmed(line).empty()) insert_at = result.size();
  }
  if (!done && seen_section) result.insert(result.begin() + static_cast<std::ptrdiff_t>(insert_at), entry);
  if (!done && !seen_section) {
    if (!result.empty() && !trimmed(result.back()).empty()) result.emplace_back();
    result.push_back("[" + std::string(section) + "]");
    result.push_back(entry);
  }
  std::string edited;
  for (const std::string& line : result) edited += line + "\n";
  return edited;
}

std::string toml_literal(std::string_view value) {
  if (value == "true" || value == "false" || value.starts_with('[')) return std::string(value);
  const bool digits = value.find_first_not_of("0123456789") == value.npos;
  const bool leading_zero = value.size() > 1 && value[0] == '0';
  if (!value.empty() && digits && !leading_zero && value.size() < 19) return std::string(value);
  check(is_utf8(value), "the value \"{}\" is not valid UTF-8", printable(value));
  return Json(value).dump();  // JSON's strings are TOML's basic strings
}

}  // namespace flux2
