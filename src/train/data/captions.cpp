#include "train/data/captions.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/counted_random.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr std::string_view kTriggerMark = "{trigger}";
constexpr uint32_t kVariantPurpose = 14;
constexpr size_t kCaptionBytes = 1 << 20;

// With a space between them where there is none and no comma or full stop follows.
std::string joined(std::string first, const std::string& second) {
  if (first.empty() || second.empty()) return first + second;
  constexpr std::string_view kSpaces = " \n\t\r", kBeforeNone = " \n\t\r,.;:!?";
  if (kSpaces.find(first.back()) == kSpaces.npos && kBeforeNone.find(second.front()) == kBeforeNone.npos) first += ' ';
  return first + second;
}

std::vector<std::string> tags_of(std::string_view caption) {
  std::vector<std::string> tags;
  for (size_t begin = 0; begin <= caption.size();) {
    const size_t end = std::min(caption.find(',', begin), caption.size());
    if (const std::string_view tag = trimmed(caption.substr(begin, end - begin)); !tag.empty()) tags.emplace_back(tag);
    begin = end + 1;
  }
  return tags;
}

// A seed that is the same wherever the caption is.
uint64_t seed_of(std::string_view caption) {
  const std::string hash = sha256(std::as_bytes(std::span(caption)));
  return std::stoull(hash.substr(0, 16), nullptr, 16);
}

std::string with_additions(const DatasetConfig& config, std::string text) {
  text = joined(joined(config.caption_prefix, text), config.caption_suffix);
  const std::string& trigger = config.trigger_word;
  size_t at = text.find(kTriggerMark);
  if (at == text.npos && !trigger.empty()) return text.empty() ? trigger : trigger + ", " + text;
  for (; at != text.npos && !trigger.empty(); at = text.find(kTriggerMark, at + trigger.size()))
    text.replace(at, kTriggerMark.size(), trigger);
  return text;
}

}  // namespace

std::vector<std::string> caption_texts(const DatasetConfig& config, std::string_view caption, int64_t variants) {
  std::vector<std::string> texts = {with_additions(config, std::string(caption))};
  if (!config.shuffle_tags) return texts;
  const std::vector<std::string> tags = tags_of(caption);
  const size_t kept = std::min(static_cast<size_t>(config.keep_tags), tags.size());
  if (tags.size() - kept < 2) return texts;
  texts = {with_additions(config, fmt::format("{}", fmt::join(tags, ", ")))};
  const uint64_t seed = seed_of(caption);
  // With few tags, shuffles repeat each other. Some attempts more find most of the orders that exist.
  for (int64_t k = 1; k < 4 * variants && static_cast<int64_t>(texts.size()) < variants; ++k) {
    std::vector<std::string> order = tags;
    CountedRandom(seed, kVariantPurpose, static_cast<uint64_t>(k)).shuffle(std::span(order).subspan(kept));
    std::string text = with_additions(config, fmt::format("{}", fmt::join(order, ", ")));
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
  }
  return texts;
}

std::string caption_of_file(const std::filesystem::path& path) {
  std::string text = read_text_file(path, {.bytes = kCaptionBytes});
  if (!is_utf8(text)) fail(ErrorCode::BadFile, "{} is not a text in UTF-8: save the caption in that encoding", path.string());
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  std::string lines;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') lines += text[i];
    else if (i + 1 == text.size() || text[i + 1] != '\n') lines += '\n';
  }
  return std::string(trimmed(lines));
}

}  // namespace flux2
