#include "app/yes_no_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "image/resize.h"
#include "model/generate_tokens.h"
#include "rewrite/instructions.h"
#include "text/mistral_chat.h"

namespace flux2 {

namespace {

constexpr double kCheckedPixels = 512.0 * 512.0;

// No prompt may pretend to be another turn of the conversation. Mistral's markers are taken out where its turns are put together.
std::string without_qwen_markers(std::string text) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view mark : {"<|", "|>", "<think>", "</think>"})
      for (size_t at; (at = text.find(mark)) != std::string::npos; found = true) text.erase(at, mark.size());
  }
  return text;
}

std::string question_about(const std::string& prompt) {
  constexpr std::string_view kPlace = "{prompt}";
  std::string text(safety_prompt_question());
  const size_t place = text.find(kPlace);
  require(place != text.npos, "the question about a prompt has no place for it");
  return text.replace(place, kPlace.size(), prompt);
}

// As the reference program scales images for this question: also enlarges small ones.
Image at_checked_size(const Image& image) {
  const double factor = std::sqrt(kCheckedPixels / (static_cast<double>(image.width) * image.height));
  const auto scaled = [&](int side) { return std::max(1, static_cast<int>(factor * side)); };
  return resize(image, scaled(image.width), scaled(image.height), ResizeFilter::Bicubic);
}

}  // namespace

DecoderFamily family_of_text_encoder(const ModelFiles& files) {
  const NamedWeights weights(open_weights(files.text_encoder, {}), ModelPart::TextEncoder);
  return detect_decoder(weights).family;
}

YesNoJudge::YesNoJudge(const ModelFiles& files, const EngineOptions& engine, bool sees)
    : engine_(engine), language_(load_language(engine_, files, sees)) {
  yes_ = first_token("yes");
  no_ = first_token("no");
  if (yes_ == no_) fail(ErrorCode::Incompatible, "{}: this vocabulary cannot tell \"yes\" from \"no\"", files.tokenizer.string());
}

YesNoJudge::~YesNoJudge() = default;

// In the vocabularies of Mistral and Qwen3 each of the two words is one token.
int32_t YesNoJudge::first_token(const char* word) const {
  const std::vector<int32_t> ids = language_.tokenizer->encode(word);
  require(!ids.empty(), "\"{}\" has no tokens", word);
  return ids.front();
}

YesNo YesNoJudge::about_prompt(const std::string& prompt, const Cancelled& cancelled) const {
  const BpeTokenizer& tokenizer = *language_.tokenizer;
  const std::string_view system = safety_instructions();
  if (family() == DecoderFamily::Qwen3)
    return ask(qwen_chat_tokens(tokenizer, system, question_about(without_qwen_markers(prompt))).ids, {}, cancelled);
  return ask(mistral_chat_tokens(tokenizer, system, {{{.text = question_about(prompt)}}}).ids, {}, cancelled);
}

YesNo YesNoJudge::about_image(const Image& image, const Cancelled& cancelled) const {
  require(sees(), "an image for a language model that cannot see");
  const BeforeBlock stop_if_cancelled = [&] {
    if (cancelled && cancelled()) fail(ErrorCode::Cancelled, "stopped");
  };
  const SeenImage seen = look_at(language_, at_checked_size(image), engine_.activations(), stop_if_cancelled);
  // Task, image and question are one turn, without anything between them.
  const ChatTurn turn = {{.text = std::string(safety_image_task())},
                         {.image = TokenGrid{seen.lines, seen.columns}},
                         {.text = std::string(safety_image_question())}};
  return ask(mistral_chat_tokens(*language_.tokenizer, safety_instructions(), {turn}).ids, seen.rows, cancelled);
}

YesNo YesNoJudge::ask(const std::vector<int32_t>& ids, const Tensor& rows, const Cancelled& cancelled) const {
  check_conversation(static_cast<int64_t>(ids.size()));
  GenerateOptions how;
  how.before_layer = [&] {
    if (cancelled && cancelled()) fail(ErrorCode::Cancelled, "stopped");
  };
  if (rows.defined()) how.images = {rows, image_token(*language_.tokenizer)};
  KeyCache cache(*language_.stream, language_.model->config.decoder, engine_.activations(), static_cast<int64_t>(ids.size()));
  const Tensor scores = prompt_scores(*language_.model, *language_.stream, engine_.activations(), ids, cache, how);
  const auto at = [&](int32_t id) { return scores.narrowed(0, id, 1).contiguous().to_floats().at(0); };
  const YesNo answer{.yes = at(yes_), .no = at(no_), .tie_is_yes = yes_ < no_};
  // A value that is no number would count as "no".
  if (!std::isfinite(answer.yes) || !std::isfinite(answer.no))
    fail(ErrorCode::BadFile, "the language model of the safety check computed values that are no numbers; its file is damaged");
  return answer;
}

}  // namespace flux2
