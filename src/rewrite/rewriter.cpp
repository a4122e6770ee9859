#include "rewrite/rewriter.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "rewrite/answer_text.h"

namespace flux2 {

std::string RewriteQuestion::text() const {
  if (!is_caption) return prompt;
  return prompt.empty() ? "Describe this image." : "Describe this image. About it: " + prompt;
}

RewrittenPrompt rewrite_prompt(Rewriter& rewriter, RewriteQuestion question, size_t max_bytes,
                               const Rewriter::Cancelled& cancelled, const Log& log) {
  constexpr int kAttempts = 2;
  if (!rewriter.sees_images()) question.images.clear();
  for (int attempt = 0; attempt < kAttempts; ++attempt, ++question.seed) {
    const RewriteAnswer answer = rewriter.answer(question, cancelled);
    std::string prompt = prompt_in_answer(answer.text);
    if (answer.is_cut) {
      prompt = without_unfinished_sentence(prompt);
      log.warn("the rewritten prompt was cut off at the largest number of tokens (upsample-max-tokens)");
    }
    if (prompt.size() > max_bytes)
      fail(ErrorCode::Incompatible, "the language model answered {} bytes, but a prompt may have {}", prompt.size(), max_bytes);
    if (lost_quotes(question.prompt, prompt).empty()) return {std::move(prompt), answer.tokens};
  }
  fail(ErrorCode::Incompatible, "the language model changed text that the prompt has in quotes");
}

RewrittenPrompt describe_image(Rewriter& rewriter, const Image& image, const DescribeOptions& options,
                               const Rewriter::Cancelled& cancelled, const Log& log) {
  if (!rewriter.sees_images())
    throw Error(ErrorCode::Incompatible, fmt::format("{} cannot look at images", rewriter.model()),
                "use the text encoder of FLUX.2-dev, or a chat server with a model that sees");
  const RewriteAnswer answer = rewriter.answer({.prompt = std::string(trimmed(options.about)),
                                                .images = {image},
                                                .seed = options.seed,
                                                .is_caption = true,
                                                .on_text = options.on_text},
                                               cancelled);
  std::string text = prompt_in_answer(answer.text);
  if (answer.is_cut) {
    text = without_unfinished_sentence(text);
    log.warn("a description was cut off at the largest number of tokens (upsample-max-tokens)");
  }
  if (options.one_line) text = in_one_line(text);
  if (text.size() > options.max_bytes)
    fail(ErrorCode::Incompatible, "the language model answered {} bytes, but a description may have {}", text.size(),
         options.max_bytes);
  return {std::move(text), answer.tokens};
}

}  // namespace flux2
