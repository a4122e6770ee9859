#include "model/generate_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "ops/embedding.h"

namespace flux2 {

namespace {

// Embeds tokens of the prompt, piece by piece, with the rows of images in their places.
class PromptRows {
 public:
  PromptRows(const LanguageModel& model, Stream& stream, DType activations, const ImageRows& images)
      : model_(model), stream_(stream), activations_(activations), images_(images) {}

  Tensor next(std::span<const int32_t> ids) {
    const auto count = static_cast<int64_t>(ids.size());
    Tensor rows = embedding(Tensor::from<int32_t>(stream_, DType::I32, {1, count}, ids), model_.embed_tokens, activations_);
    if (!images_.rows.defined()) return rows;
    for (int64_t at = 0; at < count;) {
      int64_t end = at;
      while (end < count && ids[static_cast<size_t>(end)] == images_.token) ++end;
      if (end > at) {
        rows.narrowed(1, at, end - at).copy_from(images_.rows.narrowed(1, used_, end - at));
        used_ += end - at;
      }
      at = end + 1;
    }
    return rows;
  }

 private:
  const LanguageModel& model_;
  Stream& stream_;
  DType activations_;
  const ImageRows& images_;
  int64_t used_ = 0;
};

}  // namespace

Tensor prompt_scores(const LanguageModel& model, Stream& stream, DType activations, std::span<const int32_t> prompt,
                     KeyCache& cache, const GenerateOptions& options) {
  check(!prompt.empty(), "a language model needs a text to continue");
  check(options.prefill_rows > 0, "a prompt is read in pieces of {} tokens", options.prefill_rows);
  const int64_t vocab = model.config.decoder.vocab;
  for (const int32_t id : prompt)
    if (id < 0 || id >= vocab)
      fail(ErrorCode::Incompatible,
           "the tokenizer uses id {}, but the language model has only {} tokens: they do not belong together", id, vocab);
  if (const Tensor& images = options.images.rows; images.defined()) {
    const auto places = std::count(prompt.begin(), prompt.end(), options.images.token);
    require(images.rank() == 3 && images.dim(1) == places, "{} image tokens for rows {}", places, images.shape());
  }
  const auto length = static_cast<int64_t>(prompt.size());
  PromptRows rows(model, stream, activations, options.images);
  Tensor scores;
  for (int64_t start = 0; start < length; start += options.prefill_rows) {
    const auto piece =
        prompt.subspan(static_cast<size_t>(start), static_cast<size_t>(std::min(options.prefill_rows, length - start)));
    scores = model.scores_of_rows(rows.next(piece), cache, options.before_layer);
  }
  return scores;
}

GeneratedTokens generate_tokens(const LanguageModel& model, Stream& stream, DType activations, std::span<const int32_t> prompt,
                                const GenerateOptions& options) {
  check(options.max_new > 0, "generating {} tokens", options.max_new);
  KeyCache cache(stream, model.config.decoder, activations, static_cast<int64_t>(prompt.size()) + options.max_new);
  Tensor scores = prompt_scores(model, stream, activations, prompt, cache, options);
  TokenSteps steps(model, stream, cache,
                   {.activations = activations, .capture = options.capture, .before_layer = options.before_layer});

  GeneratedTokens made;
  std::vector<int32_t> all(prompt.begin(), prompt.end());
  for (int64_t n = 0; n < options.max_new; ++n) {
    if (options.ends && options.ends()) {
      made.reason = GeneratedTokens::Ended;
      return made;
    }
    const int32_t id = sample_token(scores.to_floats(), all, options.sampling, static_cast<uint64_t>(n));
    if (std::find(options.stop.begin(), options.stop.end(), id) != options.stop.end()) return made;
    made.ids.push_back(id);
    all.push_back(id);
    if (options.on_token) options.on_token(id);
    if (n + 1 < options.max_new) scores = steps.scores_after(id);
  }
  made.reason = GeneratedTokens::Length;
  return made;
}

}  // namespace flux2
