#include "pipeline/text_states.h"

#include "text/prompt.h"

namespace flux2 {

Tensor encode_tokens(const std::shared_ptr<const TextEncoder>& encoder, Session& session, const Tensor& ids, const Tensor& mask,
                     const BeforeBlock& before_layer) {
  if (!can_capture(*encoder) || !captures(session)) return (*encoder)(ids, mask, session.activations, before_layer);
  return captured(session, encoder, {ids, mask}, session.activations, ids.shape().append(encoder->config.output_width()),
                  [&](std::span<const Tensor> in) { return (*encoder)(in[0], in[1], session.activations); });
}

Tensor text_states(Session& session, const std::string& prompt, const std::string& trace_name, const Progress& progress) {
  const Tensor cached = session.prompt_cache.find(prompt);
  if (cached.defined() && !session.trace) return cached;
  const Models& models = session.models;

  check(models.text_encoder && models.tokenizer, "no text encoder is loaded and no text states were given");
  const PromptTokens tokens = tokenize_prompt(*models.tokenizer, prompt, models.text_length);
  if (!tokens.dropped.empty())
    session.log.warn("the prompt has more than {} tokens; {}", models.text_length, unused_part(tokens, session.log_prompts));
  const int64_t vocab = models.text_encoder.config().vocab;
  for (int32_t id : tokens.ids)
    if (id < 0 || id >= vocab)
      fail(ErrorCode::Incompatible,
           "the tokenizer uses id {}, but model.embed_tokens.weight of the text encoder has only {} rows: they do not belong "
           "together",
           id, vocab);

  const Shape shape{1, models.text_length};
  const Tensor ids = Tensor::from<int32_t>(*session.stream, DType::I32, shape, tokens.ids);
  const Tensor mask = Tensor::from<int32_t>(*session.stream, DType::I32, shape, tokens.mask);
  const Tensor states = encode_tokens(models.text_encoder.get(), session, ids, mask, progress.before_block()).cloned();

  if (session.trace) {
    session.trace->add_ints(trace_name + ".input_ids", tokens.ids);
    session.trace->add_ints(trace_name + ".attention_mask", tokens.mask);
    session.trace->add(trace_name + ".embeddings", states, {states.dim(1), states.dim(2)});
  }
  session.prompt_cache.add(prompt, states);
  return states;
}

}  // namespace flux2
