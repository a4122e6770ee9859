#include "app/local_rewriter.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>

#include "base/error.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "image/vision_prep.h"
#include "model/generate_tokens.h"
#include "text/mistral_chat.h"
#include "text/text_stream.h"

namespace flux2 {

namespace {

constexpr int64_t kSeenPixels = 768 * 768;  // of the images that the model sees, together

// As the makers recommend it: Qwen3 without thinking; Mistral as FLUX.2's reference program uses it.
TokenSampling usual_sampling(DecoderFamily family) {
  if (family == DecoderFamily::Mistral) return {.temperature = 0.15, .top_k = 50};
  return {.temperature = 0.7, .top_k = 20, .top_p = 0.8};
}

// Other members are for services that are asked over HTTP.
TokenSampling with_params(TokenSampling how, const Json& params) {
  for (auto at = params.begin(); at != params.end(); ++at) {
    const std::string& key = at.key();
    const Json& value = at.value();
    const auto number = [&](double low, double high) {
      const double given = value.is_number() ? value.get<double>() : low - 1;
      check(given >= low && given <= high, "upsample_params: {} must be a number from {} to {}", key, low, high);
      return given;
    };
    if (key == "temperature") how.temperature = number(0, 100);
    else if (key == "top_k") how.top_k = static_cast<int64_t>(number(0, 1e6));
    else if (key == "top_p") how.top_p = number(0, 1);
    else if (key == "min_p") how.min_p = number(0, 1);
    else if (key == "repetition_penalty") how.repetition_penalty = number(0.01, 100);
  }
  return how;
}

}  // namespace

LanguageAbilities language_abilities(const ModelFiles& files) {
  try {
    const LocalRewriter rewriter({.files = files, .engine = {}});
    return {.writes = true, .sees = rewriter.sees_images()};
  } catch (const Error& e) {
    return {.problem = e.what(), .hint = e.hint().plain()};
  }
}

LocalRewriter::LocalRewriter(LocalRewriterOptions options) : options_(std::move(options)) {
  const NamedWeights weights(open_weights(options_.files.text_encoder, {}), ModelPart::TextEncoder);
  const DecoderConfig decoder = text_encoder_config(options_.files, weights);
  family_ = detect_language_model(weights, decoder).decoder.family;
  sees_images_ = options_.sends_images && family_ == DecoderFamily::Mistral && has_vision(weights);
  sampling_ = with_params(usual_sampling(family_), options_.params);
  name_ = fmt::format("{} text encoder", options_.files.id);
}

LocalRewriter::~LocalRewriter() = default;

int64_t LocalRewriter::bytes_needed(bool sees, int64_t tokens) const {
  const int64_t bytes = language_bytes(*engine_, options_.files, sees, tokens), limit = engine_->options().memory_limit;
  if (limit > 0 && bytes > limit)
    fail(ErrorCode::OutOfMemory, "the language model needs {} of memory for {} tokens, but {} may be used",
         byte_text(static_cast<uint64_t>(bytes)), tokens, byte_text(static_cast<uint64_t>(limit)));
  return bytes;
}

void LocalRewriter::load(bool sees) {
  if (!engine_) engine_ = std::make_unique<Engine>(options_.engine);
  if (language_.model && (language_.vision || !sees)) return;
  language_ = {};  // before it is loaded with its eyes
  const int64_t bytes = bytes_needed(sees, kUsualConversation);
  if (options_.make_room) options_.make_room(bytes);
  try {
    language_ = load_language(*engine_, options_.files, sees);
  } catch (const Error& e) {  // the forecast was too hopeful
    if (e.code() != ErrorCode::OutOfMemory || !options_.make_room || !options_.make_room(std::numeric_limits<int64_t>::max()))
      throw;
    language_ = load_language(*engine_, options_.files, sees);
  }
}

void LocalRewriter::release() {
  language_ = {};
  engine_.reset();
}

LocalRewriter::Conversation LocalRewriter::conversation(const RewriteQuestion& question, const BeforeBlock& before_layer) const {
  const std::string& instructions = question.is_caption ? options_.caption_instructions
                                    : question.is_edit  ? options_.edit_instructions
                                                        : options_.prompt_instructions;
  const BpeTokenizer& tokenizer = *language_.tokenizer;
  if (family_ == DecoderFamily::Qwen3) return {qwen_chat_tokens(tokenizer, instructions, question.text()), {}};
  if (question.images.empty()) return {mistral_chat_tokens(tokenizer, instructions, {{{.text = question.text()}}}), {}};
  const SeenImage seen =
      look_at(language_, with_at_most(joined_images(question.images), kSeenPixels), engine_->activations(), before_layer);
  const ChatPart image{.image = TokenGrid{seen.lines, seen.columns}}, text{.text = question.text()};
  // For edits, the images are a turn of their own, as in the reference program.
  const std::vector<ChatTurn> turns =
      question.is_caption ? std::vector<ChatTurn>{{image, text}} : std::vector<ChatTurn>{{image}, {text}};
  return {mistral_chat_tokens(tokenizer, instructions, turns), seen.rows};
}

RewriteAnswer LocalRewriter::answer(const RewriteQuestion& question, const Cancelled& cancelled) {
  using Clock = std::chrono::steady_clock;
  require(question.images.empty() || sees_images_, "images for a language model that cannot see");
  load(!question.images.empty());
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout_s));
  const auto stop_if_cancelled = [&] {
    if (cancelled && cancelled()) fail(ErrorCode::Cancelled, "stopped");
  };
  const Conversation asked = conversation(question, stop_if_cancelled);
  const int64_t count = static_cast<int64_t>(asked.tokens.ids.size()) + options_.max_tokens;
  check_conversation(count);
  if (count > kUsualConversation) bytes_needed(asked.rows.defined(), count);
  TextStream text(*language_.tokenizer);
  std::string shown;
  int64_t tokens = 0;
  GenerateOptions how;
  how.sampling = sampling_;
  how.sampling.seed = question.seed;
  how.max_new = options_.max_tokens;
  how.stop = asked.tokens.stop;
  how.on_token = [&](int32_t id) {
    ++tokens;
    if (!question.on_text) return void(text.add(id));
    shown += text.add(id);
    question.on_text(shown, tokens);
  };
  how.ends = [&] {
    stop_if_cancelled();
    return Clock::now() >= deadline;
  };
  const auto too_slow = [&] {
    fail(ErrorCode::InvalidArgument, "the language model wrote nothing within {} seconds (upsample_timeout)", options_.timeout_s);
  };
  how.before_layer = [&] {
    stop_if_cancelled();
    if (tokens == 0 && Clock::now() >= deadline) too_slow();  // it still reads the prompt
  };
  // A captured step keeps all its memory, as captured work of images does.
  if (engine_->options().memory_limit > 0) how.capture = CaptureSteps::Never;
  if (asked.rows.defined()) how.images = {asked.rows, image_token(*language_.tokenizer)};
  const GeneratedTokens made =
      generate_tokens(*language_.model, *language_.stream, engine_->activations(), asked.tokens.ids, how);
  if (made.reason == GeneratedTokens::Ended && made.ids.empty()) too_slow();
  const std::string all = text.text();
  return {family_ == DecoderFamily::Mistral ? without_loose_spaces(all) : all, static_cast<int64_t>(made.ids.size()),
          made.reason != GeneratedTokens::Stop};
}

}  // namespace flux2
