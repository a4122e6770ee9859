#include "pipeline/text_states.h"

#include <algorithm>
#include <span>

#include "ops/view.h"
#include "text/prompt.h"

namespace flux2 {

Tensor encode_tokens(const std::shared_ptr<const TextEncoder>& encoder, Session& session, const Tensor& ids, const Tensor& mask,
                     const BeforeBlock& before_layer) {
  if (!can_capture(*encoder) || !captures(session)) return (*encoder)(ids, mask, session.activations, before_layer);
  return captured(session, encoder, {ids, mask}, session.activations, ids.shape().append(encoder->config.output_width()),
                  [&](std::span<const Tensor> in) { return (*encoder)(in[0], in[1], session.activations); });
}

namespace {

// The states of a prompt whose padding comes first. Nothing attends to the padding and the padding sees nothing, so only the
// prompt's own tokens are computed, at positions from 0 on: rotations are relative.
Tensor encode_behind_padding(Session& session, const PromptTokens& tokens, const BeforeBlock& before_layer) {
  const Models& models = session.models;
  const auto encoder = models.text_encoder.get();
  const std::span real = std::span(tokens.ids).subspan(static_cast<size_t>(tokens.first()));
  const std::span prefix_ids = real.first(static_cast<size_t>(tokens.shared)), own_ids = real.subspan(prefix_ids.size());
  const auto ids = [&](std::span<const int32_t> list) {
    return Tensor::from<int32_t>(*session.stream, DType::I32, {1, static_cast<int64_t>(list.size())}, list);
  };

  std::shared_ptr<const PromptPrefix> prefix = session.prompt_prefix;
  const bool known = prefix && prefix->encoder == models.text_encoder.identity() && std::ranges::equal(prefix->ids, prefix_ids);
  auto made = std::make_shared<PromptPrefix>();
  made->keys.resize(encoder->layers.size());
  std::vector<TokenRun> runs;
  if (!known) {
    made->encoder = models.text_encoder.identity();
    made->ids.assign(prefix_ids.begin(), prefix_ids.end());
    const int32_t pad = models.tokenizer->pad_id();
    runs.push_back({.ids = ids(prefix_ids), .memory = [&](size_t layer) {
                      return [&, layer](const TokenKeys& now) { return made->keys[layer] = now; };
                    }});
    runs.push_back({.ids = ids(std::span(&pad, 1)), .sees = false});
    prefix = made;
  }
  runs.push_back({.ids = ids(own_ids), .past = tokens.shared, .memory = [&](size_t layer) {
                    return [&, layer](const TokenKeys& now) {
                      const TokenKeys& before = prefix->keys[layer];
                      return TokenKeys{concat({before.k, now.k}, 1), concat({before.v, now.v}, 1)};
                    };
                  }});
  const std::vector<Tensor> states = encoder->states_of(runs, session.activations, before_layer);
  if (!known) {
    made->states = states[0].contiguous();
    made->pad = states[1].contiguous();
    session.prompt_prefix = made;
  }
  const int64_t first = tokens.first(), width = prefix->states.dim(2);
  Tensor all = Tensor::like(states.back(), {1, static_cast<int64_t>(tokens.ids.size()), width});
  if (first > 0) all.narrowed(1, 0, first).copy_from(prefix->pad.expanded({1, first, width}));
  all.narrowed(1, first, tokens.shared).copy_from(prefix->states);
  all.narrowed(1, first + tokens.shared, tokens.real - tokens.shared).copy_from(states.back());
  return all;
}

}  // namespace

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

  const Tensor states = [&] {
    if (tokens.pads_first && tokens.real > tokens.shared) return encode_behind_padding(session, tokens, progress.before_block());
    const Shape shape{1, models.text_length};
    const Tensor ids = Tensor::from<int32_t>(*session.stream, DType::I32, shape, tokens.ids);
    const Tensor mask = Tensor::from<int32_t>(*session.stream, DType::I32, shape, tokens.mask);
    return encode_tokens(models.text_encoder.get(), session, ids, mask, progress.before_block()).cloned();
  }();

  if (session.trace) {
    session.trace->add_ints(trace_name + ".input_ids", tokens.ids);
    session.trace->add_ints(trace_name + ".attention_mask", tokens.mask);
    session.trace->add(trace_name + ".embeddings", states, {states.dim(1), states.dim(2)});
  }
  session.prompt_cache.add(prompt, states);
  return states;
}

}  // namespace flux2
