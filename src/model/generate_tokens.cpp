#include "model/generate_tokens.h"

#include <algorithm>

#include "base/error.h"

namespace flux2 {

GeneratedTokens generate_tokens(const LanguageModel& model, Stream& stream, DType activations, std::span<const int32_t> prompt,
                                const GenerateOptions& options) {
  check(!prompt.empty(), "a language model needs a text to continue");
  check(options.max_new > 0 && options.prefill_rows > 0, "generating {} tokens", options.max_new);
  const int64_t vocab = model.config.decoder.vocab;
  for (const int32_t id : prompt)
    if (id < 0 || id >= vocab)
      fail(ErrorCode::Incompatible,
           "the tokenizer uses id {}, but the language model has only {} tokens: they do not belong together", id, vocab);

  const auto length = static_cast<int64_t>(prompt.size());
  KeyCache cache(stream, model.config.decoder, activations, length + options.max_new);
  const auto scores_after = [&](std::span<const int32_t> ids) {
    const Tensor tokens = Tensor::from<int32_t>(stream, DType::I32, {1, static_cast<int64_t>(ids.size())}, ids);
    return model.scores(tokens, cache, activations, options.before_layer);
  };
  Tensor scores;
  for (int64_t start = 0; start < length; start += options.prefill_rows)
    scores = scores_after(
        prompt.subspan(static_cast<size_t>(start), static_cast<size_t>(std::min(options.prefill_rows, length - start))));

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
    if (n + 1 < options.max_new) scores = scores_after({&id, 1});
  }
  made.reason = GeneratedTokens::Length;
  return made;
}

}  // namespace flux2
