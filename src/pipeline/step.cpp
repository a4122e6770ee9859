#include "pipeline/step.h"

#include "ops/view.h"
#include "pipeline/session.h"

namespace flux2 {

Tensor step_velocity(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session, const StepConditions& c,
                     const Tensor& x, const Tensor& time) {
  const auto work = [&](std::span<const Tensor> in) {
    return (*transformer)({.x = in[6].defined() ? concat({in[0], in[6]}, 1) : in[0],
                           .vec = transformer->condition(in[1], in[2]),
                           .txt = in[3],
                           .rope = Rope{in[4], in[5], c.rope.pairs},
                           .keep = in[0].dim(1)});
  };
  const std::vector<Tensor> inputs = {x, time, c.guidance, c.text, c.rope.cosine, c.rope.sine, c.references};
  if (!can_capture(*transformer)) return work(inputs).cast(DType::F32);
  return captured(session, transformer, inputs, DType::F32, x.shape(), work);
}

}  // namespace flux2
