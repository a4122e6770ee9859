#include "record/a1111_text.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/picture_size.h"

namespace flux2 {

namespace {

constexpr std::string_view kNegative = "Negative prompt: ";

// A value that would break the line apart is written as a JSON string.
std::string quoted_if_needed(const std::string& value) {
  return value.find_first_of(",:\n\"") == value.npos ? value
                                                     : Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The end of the JSON string that begins at text[0].
size_t end_of_quoted(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') ++i;
    else if (text[i] == '"') return i + 1;
  }
  return text.npos;
}

std::vector<std::pair<std::string, std::string>> parse_pairs(std::string_view line) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!(line = trimmed(line)).empty()) {
    const size_t colon = line.find(':');
    if (colon == line.npos) return {};
    const std::string key(trimmed(line.substr(0, colon)));
    if (key.empty() || key.size() > 60 || key.find(',') != key.npos) return {};
    line = trimmed(line.substr(colon + 1));
    std::string value;
    size_t end = line.starts_with('"') ? end_of_quoted(line) : line.npos;
    if (end != line.npos) {
      const Json parsed = Json::parse(line.substr(0, end), nullptr, false);
      value = parsed.is_string() ? parsed.get<std::string>() : std::string(line.substr(0, end));
      end = line.find(',', end);
    } else {
      end = line.find(',');
      value = std::string(trimmed(line.substr(0, end)));
    }
    pairs.emplace_back(key, value);
    line = end == line.npos ? std::string_view{} : line.substr(end + 1);
  }
  return pairs;
}

template <class T>
void read_number(const A1111Text& text, std::string_view key, T& value) {
  if (const std::string* found = text.find(key)) {
    T parsed{};
    if (std::from_chars(found->data(), found->data() + found->size(), parsed).ec == std::errc()) value = parsed;
  }
}

void read_text(const A1111Text& text, std::string_view key, std::string& value) {
  if (const std::string* found = text.find(key)) value = *found;
}

}  // namespace

const std::string* A1111Text::find(std::string_view key) const {
  for (const auto& [name, value] : pairs)
    if (name == key) return &value;
  return nullptr;
}

std::string to_a1111(const GenerationRecord& r, bool is_private) {
  std::string text = is_private ? std::string{} : r.prompt + "\n";
  if (!is_private && !r.negative.empty()) text += std::string(kNegative) + r.negative + "\n";
  const char* separator = "";
  const auto add = [&](const char* key, const std::string& value) {
    text += fmt::format("{}{}: {}", separator, key, quoted_if_needed(value));
    separator = ", ";
  };
  add("Steps", std::to_string(r.steps));
  add("Sampler", r.sampler == "euler" ? "Euler" : r.sampler);
  add("Schedule type", r.schedule);
  add("CFG scale", fmt::format("{}", r.cfg.value_or(1.0)));
  if (r.embedded_guidance) add("Distilled CFG Scale", fmt::format("{}", r.guidance));
  add("Seed", std::to_string(r.seed));
  add("Size", fmt::format("{}x{}", r.width, r.height));
  if (!r.model_sha256.empty()) add("Model hash", r.model_sha256.substr(0, 10));
  if (!is_private && !r.model.empty()) add("Model", r.model);
  if (r.strength < 1.0) add("Denoising strength", fmt::format("{}", r.strength));
  if (!is_private && !r.adapters.empty()) {
    std::string hashes;
    for (const AdapterRecord& adapter : r.adapters)
      hashes += fmt::format("{}{}: {}", hashes.empty() ? "" : ", ", adapter.name, adapter.sha256.substr(0, 10));
    add("Lora hashes", hashes);
  }
  add("RNG", r.noise);
  add("Profile", r.profile);
  add("Version", r.app);
  return text;
}

A1111Text parse_a1111(std::string_view text) {
  A1111Text parsed;
  text = trimmed(text);
  const size_t newline = text.rfind('\n');
  const std::string_view last = newline == text.npos ? text : text.substr(newline + 1);
  auto pairs = parse_pairs(last);
  const bool settings = last.starts_with("Steps:") || pairs.size() >= 3;
  if (settings && !pairs.empty()) {
    parsed.pairs = std::move(pairs);
    text = newline == text.npos ? std::string_view{} : text.substr(0, newline);
  }
  size_t negative = text.starts_with(kNegative) ? 0 : text.find("\n" + std::string(kNegative));
  if (negative != text.npos) {
    parsed.negative = trimmed(text.substr(text.find(':', negative) + 1));
    text = text.substr(0, negative);
  }
  parsed.prompt = trimmed(text);
  return parsed;
}

GenerationRecord record_from_a1111(const A1111Text& text) {
  GenerationRecord r;
  r.app.clear();
  r.prompt = text.prompt;
  r.negative = text.negative;
  read_number(text, "Steps", r.steps);
  read_number(text, "Seed", r.seed);
  read_number(text, "Distilled CFG Scale", r.guidance);
  r.embedded_guidance = text.find("Distilled CFG Scale") != nullptr;
  double cfg = 1.0;
  read_number(text, "CFG scale", cfg);
  if (cfg != 1.0) r.cfg = cfg;
  if (const std::string* size = text.find("Size")) {
    try {
      const PictureSize parsed = parse_picture_size(*size);
      r.width = parsed.width, r.height = parsed.height;
    } catch (const Error&) {
      // Another program's idea of a size; the picture itself has one.
    }
  }
  read_text(text, "Sampler", r.sampler);
  if (r.sampler == "Euler") r.sampler = "euler";
  read_text(text, "Schedule type", r.schedule);
  read_text(text, "Model", r.model);
  read_text(text, "Model hash", r.model_sha256);
  read_text(text, "RNG", r.noise);
  read_text(text, "Profile", r.profile);
  read_text(text, "Version", r.app);
  return r;
}

}  // namespace flux2
