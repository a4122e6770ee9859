#include "record/a1111_text.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/picture_size.h"
#include "record/field_values.h"
#include "record/image_prompt_text.h"
#include "record/request_fields.h"

namespace flux2 {

namespace {

constexpr std::string_view kNegative = "Negative prompt: ";

// A value that would break the line apart is written as a JSON string.
std::string quoted_if_needed(const std::string& value) {
  return value.find_first_of(",:\n\"") == value.npos ? value : Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
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
      const auto parsed = try_parse_json(line.substr(0, end));
      value = parsed && parsed->is_string() ? parsed->get<std::string>() : std::string(line.substr(0, end));
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

std::optional<double> number(const A1111Text& text, std::string_view key) {
  const std::string* found = text.find(key);
  double value = 0;
  if (!found || std::from_chars(found->data(), found->data() + found->size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

void read_text(const A1111Text& text, std::string_view key, std::string& value) {
  if (const std::string* found = text.find(key)) value = *found;
}

// The value of a field, as long as it means something to us: other programs have other samplers.
void read_field(const A1111Text& text, const Field& f, RequestSpec& request) {
  const std::string* found = text.find(f.a1111_key);
  if (!found) return;
  try {
    const bool words = f.type == FieldType::Text || f.type == FieldType::Choice;
    set_value(request, f, words ? FieldValue(*found) : parse_value(f, {*found}, f.a1111_key));
  } catch (const Error&) {
    // Another program's idea of this value.
  }
}

}  // namespace

const std::string* A1111Text::find(std::string_view key) const {
  for (const auto& [name, value] : pairs)
    if (name == key) return &value;
  return nullptr;
}

std::string to_a1111(const GenerationRecord& r, bool is_private) {
  std::string text = is_private ? std::string{} : r.prompt() + "\n";
  const std::string negative = r.request.negative.value_or("");
  if (!is_private && !negative.empty()) text += std::string(kNegative) + negative + "\n";
  const char* separator = "";
  const auto add = [&](const char* key, const std::string& value) {
    text += fmt::format("{}{}: {}", separator, key, quoted_if_needed(value));
    separator = ", ";
  };
  const auto add_field = [&](const char* name) {
    const Field& f = field(name);
    if (const auto value = get_value(r.request, f)) add(f.a1111_key.c_str(), print_value(*value).front());
  };
  add_field("steps");
  if (r.request.sampler == "euler") add("Sampler", "Euler");
  else add_field("sampler");
  add_field("schedule");
  add("CFG scale", fmt::format("{}", r.request.cfg.value_or(1.0)));
  if (r.embedded_guidance) add("Distilled CFG Scale", fmt::format("{}", r.request.guidance.value_or(1.0)));
  add_field("seed");
  add("Size", fmt::format("{}x{}", r.width(), r.height()));
  if (!r.model_sha256.empty()) add("Model hash", r.model_sha256.substr(0, 10));
  if (!is_private && !r.model.empty()) add("Model", r.model);
  add_field("strength");
  add_field("hires");
  if (!is_private && !r.adapters.empty()) {
    std::string hashes;
    for (const AdapterRecord& adapter : r.adapters)
      hashes += fmt::format("{}{}: {}", hashes.empty() ? "" : ", ", adapter.name, adapter.sha256.substr(0, 10));
    add("Lora hashes", hashes);
  }
  // For people only. Other programs have no key for image prompts, and flux2 reads them back from its own JSON.
  if (!is_private && !r.image_prompts.empty()) {
    std::string prompts;
    for (const auto& [picture, strength, from, to] : r.image_prompts)
      prompts += fmt::format("{}{}", prompts.empty() ? "" : ", ", ImagePromptText{picture.name, strength, from, to}.text());
    add("Image prompts", prompts);
    add("Image prompt adapter", fmt::format("{}: {}", r.image_prompt_adapter.name, r.image_prompt_adapter.sha256.substr(0, 10)));
  }
  add_field("noise");
  add_field("profile");
  if (!is_private) add_field("rewritten_prompt");
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
  r.request.prompt = text.prompt;
  if (!text.negative.empty()) r.request.negative = text.negative;
  for (const Field& f : request_fields())
    if (!f.a1111_key.empty()) read_field(text, f, r.request);
  if (r.request.sampler == "Euler") r.request.sampler = "euler";
  r.request.guidance = number(text, "Distilled CFG Scale");
  r.embedded_guidance = r.request.guidance.has_value();
  if (const auto cfg = number(text, "CFG scale"); cfg && *cfg != 1.0) r.request.cfg = cfg;
  if (const std::string* size = text.find("Size")) {
    try {
      const PictureSize parsed = parse_picture_size(*size);
      r.request.width = parsed.width, r.request.height = parsed.height;
    } catch (const Error&) {
      // Another program's idea of a size; the picture itself has one.
    }
  }
  read_text(text, "Model", r.model);
  read_text(text, "Model hash", r.model_sha256);
  read_text(text, "Version", r.app);
  return r;
}

}  // namespace flux2
