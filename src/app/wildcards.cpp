#include "app/wildcards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr int kDeepest = 32;                  // choices inside choices, files inside files
constexpr size_t kLongest = size_t{1} << 20;  // bytes of an expanded prompt
constexpr size_t kMostWork = 20'000'000;      // characters and alternatives visited: files may name each other many times
constexpr size_t kNone = std::string_view::npos;

bool is_escape(std::string_view text, size_t at) {
  return text[at] == '\\' && at + 1 < text.size() && std::string_view("{|}_").find(text[at + 1]) != kNone;
}

// For every { the place of its }, or kNone.
std::vector<size_t> matching_braces(std::string_view text) {
  std::vector<size_t> match(text.size(), kNone), open;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_escape(text, i)) ++i;
    else if (text[i] == '{') open.push_back(i);
    else if (text[i] == '}' && !open.empty()) match[open.back()] = i, open.pop_back();
  }
  return match;
}

// The parts between the | of a group, without those of inner groups; one part means that the braces are plain text.
std::vector<std::string_view> alternatives(std::string_view text, size_t open, const std::vector<size_t>& match) {
  std::vector<std::string_view> parts;
  size_t start = open + 1, end = match[open];
  for (size_t i = start; i < end; ++i) {
    if (is_escape(text, i)) ++i;
    else if (text[i] == '{' && match[i] != kNone) i = match[i];
    else if (text[i] == '|') parts.push_back(text.substr(start, i - start)), start = i + 1;
  }
  parts.push_back(text.substr(start, end - start));
  return parts;
}

// The name in "__name__…", or nothing.
std::string_view file_name_at(std::string_view text, size_t at) {
  if (text.substr(at, 2) != "__") return {};
  const size_t end = text.find("__", at + 2);
  if (end == kNone) return {};
  const std::string_view name = text.substr(at + 2, end - at - 2);
  const bool sound =
      !name.empty() && std::isalnum(static_cast<unsigned char>(name[0])) &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '/'; });
  return sound ? name : std::string_view{};
}

bool is_json_object(std::string_view text) {
  if (!trimmed(text).starts_with('{')) return false;
  try {
    return parse_json(text).is_object();
  } catch (const Error&) {
    return false;
  }
}

// "2::blue" → 2 and "blue"; the default weight is 1.
std::pair<double, std::string_view> weighted(std::string_view text) {
  double weight = 1;
  const std::string_view body = trimmed(text);
  const auto [stop, failure] = std::from_chars(body.data(), body.data() + body.size(), weight);
  const auto used = static_cast<size_t>(stop - body.data());
  if (failure != std::errc() || body.substr(used, 2) != "::") return {1, text};
  check(weight >= 0 && weight < 1e6, "\"{}\": a weight is a number from 0 to a million", body);
  return {weight, body.substr(used + 2)};
}

}  // namespace

// Random numbers of one expansion.
struct Wildcards::Draw {
  uint64_t seed;
  uint64_t count = 0;
  size_t work = 0;

  void spend(size_t amount) {
    work += amount;
    check(work <= kMostWork, "the prompt takes too long to expand: its wildcards refer to each other too often");
  }

  template <class Text>
  std::string_view among(const std::vector<Text>& texts) {
    std::vector<std::pair<double, std::string_view>> choices;
    double total = 0;
    spend(texts.size());
    for (const Text& text : texts) total += choices.emplace_back(weighted(text)).first;
    check(total > 0, "the weights of all alternatives are 0, as in \"{}\"", texts.front());
    double at = philox(seed, count++, 0x77696c64)[0] / 4294967296.0 * total;
    for (const auto& [weight, text] : choices) {
      if (at < weight) return text;
      at -= weight;
    }
    return std::find_if(choices.rbegin(), choices.rend(), [](const auto& c) { return c.first > 0; })->second;
  }
};

bool Wildcards::used_in(std::string_view prompt) {
  if (is_json_object(prompt)) return false;
  const auto match = matching_braces(prompt);
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (is_escape(prompt, i) || !file_name_at(prompt, i).empty()) return true;
    if (match[i] != kNone && alternatives(prompt, i, match).size() > 1) return true;
  }
  return false;
}

std::string Wildcards::expand(std::string_view prompt, uint64_t seed) {
  if (is_json_object(prompt)) return std::string(prompt);
  Draw draw{seed};
  std::string out;
  expand(prompt, draw, 0, out);
  return out;
}

void Wildcards::expand(std::string_view text, Draw& draw, int depth, std::string& out) {
  check(depth <= kDeepest, "wildcards are nested more than {} levels deep, or refer to each other in a cycle", kDeepest);
  draw.spend(text.size() + 1);
  const auto match = matching_braces(text);
  for (size_t i = 0; i < text.size(); ++i) {
    check(out.size() <= kLongest, "with its wildcards expanded, the prompt is longer than {} bytes", kLongest);
    if (is_escape(text, i)) {
      out += text[++i];
    } else if (const std::string_view name = file_name_at(text, i); !name.empty()) {
      expand(draw.among(lines_of(std::string(name))), draw, depth + 1, out);
      i += name.size() + 3;
    } else if (match[i] != kNone) {
      const auto parts = alternatives(text, i, match);
      if (parts.size() == 1) {
        out += text[i];
        continue;
      }
      expand(draw.among(parts), draw, depth + 1, out);
      i = match[i];
    } else {
      out += text[i];
    }
  }
}

const std::vector<std::string>& Wildcards::lines_of(const std::string& name) {
  if (const auto known = files_.find(name); known != files_.end()) return known->second;
  std::vector<std::string> looked;
  for (const auto& folder : folders_) {
    const auto path = folder / (name + ".txt");
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) {
      looked.push_back(folder.string());
      continue;
    }
    const std::string text = read_text_file(path, limits_);
    std::vector<std::string> lines;
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      const std::string_view line = trimmed(std::string_view(text).substr(start, end - start));
      if (!line.empty() && !line.starts_with('#')) lines.emplace_back(line);
      start = end + 1;
    }
    check(!lines.empty(), "{} contains no lines to choose from", path.string());
    return files_[name] = std::move(lines);
  }
  throw Error(ErrorCode::NotFound, fmt::format("file {}.txt for __{}__ not found in {}", name, name, fmt::join(looked, " or ")),
              Hint("name another folder with {0}, or use the prompt as it is with {1}",
                   {set_option("wildcards", "FOLDER"), set_option("wildcards", "off")}));
}

}  // namespace flux2
