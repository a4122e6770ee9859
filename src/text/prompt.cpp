#include "text/prompt.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/sha256.h"

namespace flux2 {

namespace {

constexpr std::string_view kPrefix = "<|im_start|>user\n";
constexpr std::string_view kSuffix = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

// A whole conversation in tokens, and where in it the prompt is.
struct Rendered {
  std::vector<int32_t> ids;
  size_t prompt_begin = 0, prompt_end = 0;
};

Rendered render_qwen(const BpeTokenizer& tokenizer, std::string_view prompt) {
  Rendered r{.ids = tokenizer.encode(render_qwen_prompt(prompt))};
  // The suffix begins with an added token, so its ids do not depend on the prompt before it.
  r.prompt_begin = tokenizer.encode(kPrefix).size();
  r.prompt_end = r.ids.size() - tokenizer.encode(kSuffix).size();
  return r;
}

// The system message of FLUX.2-dev in the published vocabulary, and the SHA-256 of the text they decode to. It is part of what
// the model was trained with.
constexpr int32_t kDevSystemIds[] = {4568,  1584, 1420, 26554, 1455, 12738, 2314, 3937, 38340, 1046, 3213,  5628, 37253, 11688,
                                     30557, 1408, 3481, 14608, 1044, 3481,  1010, 2452, 5604,  1321, 10636, 3816, 67813, 1046};
constexpr std::string_view kDevSystemHash = "d43d93082f24034d9c7f4e5b65cdeceb1e082c64c9cf95dfae5be89c31e1320d";

std::vector<int32_t> system_ids(const BpeTokenizer& tokenizer) {
  if (!tokenizer.system_message().empty()) return tokenizer.encode(tokenizer.system_message());
  const std::string text = tokenizer.decode(kDevSystemIds);
  if (sha256(std::as_bytes(std::span(text))) != kDevSystemHash)
    throw Error(ErrorCode::Incompatible, "the tokenizer has another vocabulary than FLUX.2-dev's",
                "use the tokenizer of FLUX.2-dev; a model of your own names its system message in model_index.json "
                "(flux2.system_message)");
  return {std::begin(kDevSystemIds), std::end(kDevSystemIds)};
}

Rendered render_mistral(const BpeTokenizer& tokenizer, std::string_view prompt) {
  Rendered r;
  const auto add_marker = [&](const char* marker) {
    const auto id = tokenizer.id_of(marker);
    if (!id)
      throw Error(ErrorCode::Incompatible, fmt::format("the tokenizer has no token {}", marker),
                  "use the tokenizer folder that belongs to the text encoder");
    r.ids.push_back(*id);
  };
  const auto add = [&](const std::vector<int32_t>& ids) { r.ids.insert(r.ids.end(), ids.begin(), ids.end()); };
  add_marker("<s>");
  add_marker("[SYSTEM_PROMPT]");
  add(system_ids(tokenizer));
  add_marker("[/SYSTEM_PROMPT]");
  add_marker("[INST]");
  r.prompt_begin = r.ids.size();
  // This marker stands for an image; the reference takes it out of prompts.
  constexpr std::string_view kImage = "[IMG]";
  std::string text(prompt);
  for (size_t at; (at = text.find(kImage)) != std::string::npos;) text.erase(at, kImage.size());
  add(tokenizer.encode(text));
  r.prompt_end = r.ids.size();
  add_marker("[/INST]");
  return r;
}

}  // namespace

std::string render_qwen_prompt(std::string_view prompt) { return std::string(kPrefix).append(prompt).append(kSuffix); }

std::string unused_part(const PromptTokens& tokens, bool quote) {
  return fmt::format("its last {} bytes are not used{}", tokens.dropped.size(), quote ? ": \"" + tokens.dropped + "\"" : "");
}

PromptFormat prompt_format(const BpeTokenizer& tokenizer) {
  if (tokenizer.id_of("[INST]") && tokenizer.id_of("[/INST]")) return PromptFormat::Mistral;
  for (const char* marker : {"<|im_start|>", "<|im_end|>"}) {
    if (!tokenizer.id_of(marker)) {
      throw Error(ErrorCode::Incompatible, fmt::format("the tokenizer has no token {}", marker),
                  "use the tokenizer folder that belongs to the text encoder");
    }
  }
  return PromptFormat::Qwen3;
}

PromptTokens tokenize_prompt(const BpeTokenizer& tokenizer, std::string_view prompt, int length) {
  check(length > 0, "a prompt needs a positive number of tokens, not {}", length);
  const bool mistral = prompt_format(tokenizer) == PromptFormat::Mistral;
  const Rendered rendered = mistral ? render_mistral(tokenizer, prompt) : render_qwen(tokenizer, prompt);

  PromptTokens tokens;
  const size_t all = rendered.ids.size(), room = static_cast<size_t>(length);
  const size_t begin = std::max(room, rendered.prompt_begin);
  if (begin < rendered.prompt_end)
    tokens.dropped = tokenizer.decode(std::span(rendered.ids).subspan(begin, rendered.prompt_end - begin));
  tokens.real = static_cast<int>(std::min(all, room));
  tokens.pads_first = mistral;
  if (mistral) tokens.shared = std::min(static_cast<int>(rendered.prompt_begin), tokens.real);
  tokens.ids.assign(room, tokenizer.pad_id());
  tokens.mask.assign(room, 0);
  std::copy_n(rendered.ids.begin(), tokens.real, tokens.ids.begin() + tokens.first());
  std::fill_n(tokens.mask.begin() + tokens.first(), tokens.real, 1);
  return tokens;
}

}  // namespace flux2
