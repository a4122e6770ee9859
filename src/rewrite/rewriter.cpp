#include "rewrite/rewriter.h"

#include "base/error.h"
#include "rewrite/answer_text.h"

namespace flux2 {

RewrittenPrompt rewrite_prompt(Rewriter& rewriter, RewriteQuestion question, size_t max_bytes,
                               const Rewriter::Cancelled& cancelled, const Log& log) {
  constexpr int kAttempts = 2;
  if (!rewriter.sees_images()) question.images.clear();
  for (int attempt = 0; attempt < kAttempts; ++attempt, ++question.seed) {
    const RewriteAnswer answer = rewriter.answer(question, cancelled);
    std::string prompt = prompt_in_answer(answer.text);
    if (answer.is_cut) {
      prompt = without_unfinished_sentence(prompt);
      log.warn("the rewritten prompt was cut at the limit of its length (upsample_max_tokens)");
    }
    if (prompt.size() > max_bytes)
      fail(ErrorCode::Incompatible, "the language model answered {} bytes, but a prompt may have {}", prompt.size(), max_bytes);
    if (lost_quotes(question.prompt, prompt).empty()) return {std::move(prompt), answer.tokens};
  }
  fail(ErrorCode::Incompatible, "the language model changed text that the prompt has in quotes");
}

}  // namespace flux2
