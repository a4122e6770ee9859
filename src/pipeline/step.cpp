#include "pipeline/step.h"

#include "ops/view.h"
#include "pipeline/reference_memory.h"
#include "pipeline/session.h"

namespace flux2 {

Tensor step_velocity(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session, const StepConditions& c,
                     const Tensor& x, const Tensor& time, const BeforeBlock& before_block) {
  const bool replayed = can_capture(*transformer) && captures(session);
  const auto work = [&](std::span<const Tensor> in) {
    return (*transformer)({.x = in[6].defined() ? concat({in[0], in[6]}, 1) : in[0],
                           .vec = transformer->condition(in[1], in[2]),
                           .txt = in[3],
                           .rope = Rope{in[4], in[5], c.rope.pairs},
                           .keep = in[0].dim(1),
                           .references = c.memory ? &c.memory->keys : nullptr,
                           .before_block = replayed ? BeforeBlock{} : before_block});
  };
  const std::vector<Tensor> inputs = {x, time, c.guidance, c.text, c.rope.cosine, c.rope.sine, c.references};
  if (!replayed) return work(inputs).cast(DType::F32);
  // Kept keys are read where they lie: work is captured for each memory.
  const std::shared_ptr<const void> model = c.memory ? std::shared_ptr<const void>(c.memory) : transformer;
  return captured(session, model, inputs, DType::F32, x.shape(), work);
}

}  // namespace flux2
