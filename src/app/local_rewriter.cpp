#include "app/local_rewriter.h"

#include <fmt/format.h>

#include <chrono>

#include "base/error.h"
#include "base/path_exists.h"
#include "model/generate_tokens.h"
#include "text/qwen_chat.h"
#include "text/text_stream.h"

namespace flux2 {

LocalRewriter::LocalRewriter(LocalRewriterOptions options) : options_(std::move(options)) {
  const NamedWeights weights(open_weights(options_.files.text_encoder, {}), ModelPart::TextEncoder);
  const LanguageModelConfig config = detect_language_model(weights, text_encoder_config(options_.files, weights));
  if (config.decoder.family != DecoderFamily::Qwen3)
    fail(ErrorCode::InvalidArgument, "{} cannot rewrite prompts itself yet: its text encoder is {}, and only Qwen3 is supported",
         options_.files.id, name_of(config.decoder.family));
  name_ = fmt::format("{} text encoder", options_.files.id);
}

LocalRewriter::~LocalRewriter() = default;

RewriteAnswer LocalRewriter::answer(const RewriteQuestion& question, const Cancelled& cancelled) {
  using Clock = std::chrono::steady_clock;
  if (!engine_) {
    engine_ = std::make_unique<Engine>(options_.engine);
    language_ = load_language(*engine_, options_.files);
  }
  const ChatTokens tokens = qwen_chat_tokens(
      *language_.tokenizer, question.is_edit ? options_.edit_instructions : options_.prompt_instructions, question.prompt);
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout_s));
  const auto stop_if_cancelled = [&] {
    if (cancelled && cancelled()) fail(ErrorCode::Cancelled, "stopped");
  };
  TextStream text(*language_.tokenizer);
  GenerateOptions how;
  how.sampling = {.temperature = 0.7, .top_k = 20, .top_p = 0.8, .seed = question.seed};  // as Qwen recommends without thinking
  how.max_new = options_.max_tokens;
  how.stop = tokens.stop;
  how.on_token = [&](int32_t id) {
    const std::string fresh = text.add(id);
    if (options_.on_text && !fresh.empty()) options_.on_text(fresh);
  };
  how.ends = [&] {
    stop_if_cancelled();
    return Clock::now() >= deadline;
  };
  how.before_layer = stop_if_cancelled;
  const GeneratedTokens made = generate_tokens(*language_.model, *language_.stream, engine_->activations(), tokens.ids, how);
  if (made.reason == GeneratedTokens::Ended && made.ids.empty())
    fail(ErrorCode::InvalidArgument, "the language model wrote nothing within {} seconds (upsample_timeout)", options_.timeout_s);
  return {text.text(), static_cast<int64_t>(made.ids.size()), made.reason != GeneratedTokens::Stop};
}

}  // namespace flux2
