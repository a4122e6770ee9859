#include "app/output_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr size_t kPromptCharacters = 40;
constexpr int kMaxSequence = 99'999'999;

// A pattern as literal text and tokens.
struct Piece {
  bool is_token = false;
  std::string text;             // literal text or the token's name
  std::optional<int> argument;  // {seq:5}
};

std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || stop != text.data() + text.size() || value < 0 || value > 1000) return std::nullopt;
  return value;
}

// %d and %05d at the start of text → their length and width.
std::optional<std::pair<size_t, int>> printf_number(std::string_view text) {
  size_t end = 1;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  if (text[0] != '%' || end >= text.size() || text[end] != 'd') return std::nullopt;
  const auto width = number_in(text.substr(1, end - 1));
  return std::pair{end + 1, width.value_or(0)};
}

std::vector<Piece> parse_pattern(std::string_view pattern) {
  std::vector<Piece> pieces;
  std::string literal;
  const auto token = [&](std::string name, std::optional<int> argument) {
    if (!literal.empty()) pieces.push_back({false, std::exchange(literal, {}), {}});
    pieces.push_back({true, std::move(name), argument});
  };
  while (!pattern.empty()) {
    if (const auto number = printf_number(pattern)) {
      token("seq", number->second);
      pattern.remove_prefix(number->first);
      continue;
    }
    const size_t close = pattern[0] == '{' ? pattern.find('}') : pattern.npos;
    if (close == pattern.npos) {
      literal += pattern[0];
      pattern.remove_prefix(1);
      continue;
    }
    const std::string_view inside = pattern.substr(1, close - 1);
    const size_t colon = inside.find(':');
    const std::string_view argument = colon == inside.npos ? std::string_view{} : inside.substr(colon + 1);
    const auto number = number_in(argument);
    check(argument.empty() || number, "output pattern: \"{}\" in {{{}}} is not a number", argument, inside);
    token(std::string(inside.substr(0, colon)), number);
    pattern.remove_prefix(close + 1);
  }
  if (!literal.empty()) pieces.push_back({false, literal, {}});
  return pieces;
}

// The first `limit` characters; what is neither letter nor digit nor beyond ASCII becomes one underscore.
std::string safe_name(std::string_view text, size_t limit) {
  std::string safe;
  size_t characters = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues = (byte & 0xc0) == 0x80;
    if (!continues && ++characters > limit) break;
    const bool keep = std::isalnum(byte) || byte >= 0x80 || c == '-';
    if (keep) safe += c;
    else if (!safe.empty() && safe.back() != '_') safe += '_';
  }
  while (!safe.empty() && safe.back() == '_') safe.pop_back();
  return safe.empty() ? "picture" : safe;
}

std::string value_of(const Piece& piece, const OutputFields& f) {
  const std::string& name = piece.text;
  if (name == "index") return std::to_string(f.index);
  if (name == "seed") return std::to_string(f.seed);
  if (name == "date") return f.date;
  if (name == "time") return f.time;
  if (name == "model") return safe_name(f.model, 100);
  if (name == "width") return std::to_string(f.width);
  if (name == "height") return std::to_string(f.height);
  if (name == "steps") return std::to_string(f.steps);
  if (name == "job") return safe_name(f.job, 100);
  if (name == "prompt") return safe_name(f.prompt, piece.argument ? static_cast<size_t>(*piece.argument) : kPromptCharacters);
  if (name == "ext") return f.extension;
  fail(ErrorCode::InvalidArgument,
       "output pattern: unknown token {{{}}}; there are seq, index, seed, date, time, model, width, height, steps, "
       "job, prompt, "
       "ext",
       name);
}

// One more than the highest number that follows `before` in the names of a folder's entries.
int next_number(const fs::path& folder, std::string_view before, bool files_only) {
  int highest = 0;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, ignored), end; entry != end; entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(before) || (files_only && entry->is_directory(ignored))) continue;
    int number = 0;
    const auto [stop, failure] = std::from_chars(name.data() + before.size(), name.data() + name.size(), number);
    if (failure == std::errc() && stop != name.data() + before.size() && number < kMaxSequence)
      highest = std::max(highest, number);
  }
  return highest + 1;
}

fs::path fill(std::string_view pattern, const OutputFields& fields) {
  fs::path folder;
  std::string name;  // of the path component being built
  bool absolute = false;
  const auto finish_component = [&] {
    if (name.empty() && folder.empty()) absolute = true;
    folder = folder.empty() && absolute ? fs::path("/") / name : folder / name;
    name.clear();
  };
  const std::vector<Piece> pieces = parse_pattern(pattern);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.is_token) {
      const bool last = std::none_of(pieces.begin() + static_cast<std::ptrdiff_t>(i), pieces.end(),
                                     [](const Piece& p) { return !p.is_token && p.text.find('/') != p.text.npos; });
      name += piece.text == "seq" ? fmt::format("{:0{}}", next_number(folder, name, last), piece.argument.value_or(0))
                                  : value_of(piece, fields);
      continue;
    }
    for (const char c : piece.text) {
      if (c == '/') finish_component();
      else name += c;
    }
  }
  return folder / name;
}

fs::path inserted_before_extension(const fs::path& path, const std::string& text) {
  return path.parent_path() / (path.stem().string() + text + path.extension().string());
}

}  // namespace

bool is_output_pattern(std::string_view target) {
  for (const Piece& piece : parse_pattern(target))
    if (piece.is_token) return true;
  return false;
}

fs::path numbered(const fs::path& path, int number) { return inserted_before_extension(path, fmt::format("-{:02}", number)); }

bool chooses_name(const std::string& target) {
  std::error_code ignored;
  return target.empty() || is_output_pattern(target) || target.ends_with('/') || fs::is_directory(target, ignored);
}

fs::path choose_output(const std::string& target, const OutputFields& fields, bool several) {
  if (!chooses_name(target)) return several ? numbered(target, fields.index + 1) : fs::path(target);
  std::string pattern = target.empty() ? std::string(kDefaultOutput) : target;
  if (!is_output_pattern(pattern) && !pattern.ends_with('/')) pattern += '/';
  if (pattern.ends_with('/')) pattern += kFolderPattern;
  return free_name(fill(pattern, fields));
}

fs::path free_name(const fs::path& path) {
  fs::path free = path;
  std::error_code ignored;
  for (int n = 2; fs::exists(fs::symlink_status(free, ignored)); ++n)
    free = inserted_before_extension(path, fmt::format("-{}", n));
  return free;
}

}  // namespace flux2
