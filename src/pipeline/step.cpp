#include "pipeline/step.h"

#include <fmt/format.h>

#include "nn/timestep.h"
#include "ops/arithmetic.h"
#include "ops/view.h"
#include "pipeline/latents.h"
#include "pipeline/references.h"
#include "pipeline/session.h"

namespace flux2 {

Tensor step_velocity(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session, const StepConditions& c,
                     const Tensor& x, const Tensor& time, const BeforeBlock& before_block) {
  const bool replayed = can_capture(*transformer) && captures(session);
  constexpr size_t kPlainInputs = 8;  // the tensors of the groups follow, then those of image prompts
  const auto work = [&](std::span<const Tensor> in) {
    TokenGroups groups;
    ImagePromptInputs prompts;
    size_t at = kPlainInputs;
    if (c.groups) {
      groups = *c.groups;
      for (Tensor* each : groups.tensors()) *each = in[at++];
    }
    if (c.image_prompts) {
      prompts = *c.image_prompts;
      for (Tensor* each : prompts.tensors()) *each = in[at++];
    }
    return (*transformer)({.x = in[6].defined() ? concat({in[0], in[6]}, 1) : in[0],
                           .vec = transformer->condition(in[1], in[2]),
                           .txt = in[3],
                           .rope = Rope{in[4], in[5], c.rope.pairs},
                           .keep = in[0].dim(1),
                           .references = c.memory ? &c.memory->keys : nullptr,
                           .reference_vec = in[7].defined() ? transformer->condition(in[7], in[2]) : Tensor(),
                           .image_prompts = c.image_prompts ? &prompts : nullptr,
                           .groups = c.groups ? &groups : nullptr,
                           .before_block = replayed ? BeforeBlock{} : before_block});
  };
  std::vector<Tensor> inputs = {x, time, c.guidance, c.text, c.rope.cosine, c.rope.sine, c.references, c.reference_time};
  if (c.groups) {
    TokenGroups groups = *c.groups;
    for (const Tensor* each : groups.tensors()) inputs.push_back(*each);
  }
  if (c.image_prompts) {
    ImagePromptInputs prompts = *c.image_prompts;
    for (const Tensor* each : prompts.tensors()) inputs.push_back(*each);
  }
  if (!replayed) return work(inputs).cast(DType::F32);
  std::string variant = c.groups ? c.groups->layout() : "";
  if (c.image_prompts) variant += fmt::format("; {} image prompts with keys", c.image_prompts->keys.size());
  // Kept keys are read in place, so work is captured separately for each memory.
  const std::shared_ptr<const void> model = c.memory ? std::shared_ptr<const void>(c.memory) : transformer;
  return captured(session, model, inputs, DType::F32, x.shape(), work, variant);
}

namespace {

Tensor repeated(const Tensor& x, int64_t n) { return x.expanded(x.shape().with(0, n)).contiguous(); }

Tensor sinusoid(const Session& session, const Request& request, int64_t rows, float value) {
  const std::vector<float> arguments(static_cast<size_t>(rows), time_argument(value, request.time_rounding));
  return timestep_embedding(*session.stream, arguments, session.activations);
}

}  // namespace

GuidedStep::GuidedStep(Session& session, const Request& request, const Conditions& conditions, int64_t pictures,
                       BeforeBlock before_block)
    : transformer_(session.models.transformer.get()),
      session_(session),
      request_(request),
      image_prompts_(session, request, pictures),
      before_block_(std::move(before_block)) {
  const TextConditions& text = conditions.text;
  if (!request.cfg) {
    passes_ = {pass({text.positive}, conditions.references, pictures)};
    return;
  }
  check(text.negative.shape() == text.positive.shape() || !request.regions.empty(), "guidance: negative states {} beside {}",
        text.negative.shape(), text.positive.shape());
  const bool alike = request.negative_references || conditions.references.count() == 0;
  halves_together_ = alike && request.regions.empty() && image_prompts_.empty() &&
                     2 * pictures * tokens_of_pass(request, conditions) <= session.tokens_at_once;
  if (halves_together_) {
    passes_ = {pass({text.negative, text.positive}, conditions.references, pictures)};
  } else {
    passes_ = {pass({text.negative}, alike ? conditions.references : ReferenceTokens{}, pictures, RegionPass::Negative),
               pass({text.positive}, conditions.references, pictures)};
  }
}

StepConditions GuidedStep::pass(const std::vector<Tensor>& texts, const ReferenceTokens& references, int64_t pictures,
                                RegionPass which) const {
  StepConditions c;
  std::vector<Tensor> rows;
  for (const Tensor& states : texts)
    rows.push_back(repeated(transformer_->embed_text(states.to(*session_.stream).cast(session_.activations)), pictures));
  c.text = rows.size() == 1 ? rows[0] : concat(rows, 0);
  if (transformer_->config.guidance)
    c.guidance = sinusoid(session_, request_, c.text.dim(0), static_cast<float>(request_.guidance));
  const int64_t text_rows = c.text.dim(1);
  // Positions count through all texts. If nobody sees the request's own prompt, it is left out, but its positions stay its own.
  const bool without_own = which == RegionPass::Positive && !uses_own_prompt(request_);
  const int64_t left_out = without_own ? text_rows / static_cast<int64_t>(request_.regions.size()) : 0;
  auto positions = text_positions(left_out + text_rows);
  positions.erase(positions.begin(), positions.begin() + left_out);
  const auto picture = picture_positions(request_.rows(), request_.columns());
  positions.insert(positions.end(), picture.begin(), picture.end());
  if (references.count() > 0 && request_.reuse_reference_keys) {
    c.memory = remember_references(transformer_, session_, request_, references, before_block_);
  } else if (references.count() > 0) {
    c.references = repeated(references.tokens.cast(session_.activations), c.text.dim(0));
    if (request_.references_at_zero) c.reference_time = sinusoid(session_, request_, c.text.dim(0), 0);
    positions.insert(positions.end(), references.positions.begin(), references.positions.end());
  }
  c.rope = session_.ropes.rope_for(*session_.stream, positions);
  c.positions = std::move(positions);
  c.groups = region_groups(*session_.stream, request_, which, text_rows, references, c.rope);
  return c;
}

Tensor GuidedStep::run(const StepConditions& conditions, const Tensor& input, float sigma) const {
  return step_velocity(transformer_, session_, conditions, input, sinusoid(session_, request_, input.dim(0), sigma),
                       before_block_);
}

// The negative pass sees none of them.
void GuidedStep::choose_image_prompts(size_t step) {
  StepConditions& c = passes_.back();
  const auto chosen = image_prompts_.at(step);
  if (chosen == c.image_prompts) return;
  c.image_prompts = chosen;
  std::vector<TokenPosition> positions = c.positions;
  const auto behind = image_prompts_.positions(chosen.get());
  positions.insert(positions.end(), behind.begin(), behind.end());
  c.rope = session_.ropes.rope_for(*session_.stream, positions);
}

Tensor GuidedStep::velocity(const Tensor& x, float sigma, size_t step) {
  choose_image_prompts(step);
  const Tensor input = x.cast(session_.activations);
  if (!request_.cfg) return run(passes_[0], input, sigma);
  Tensor negative, positive;
  if (halves_together_) {
    const auto halves = chunk(run(passes_[0], concat({input, input}, 0), sigma), 2, 0);
    negative = halves[0], positive = halves[1];
  } else {
    negative = run(passes_[0], input, sigma).cloned();  // the second pass may overwrite the result of the first
    positive = run(passes_[1], input, sigma);
  }
  return negative + *request_.cfg * (positive - negative);
}

}  // namespace flux2
