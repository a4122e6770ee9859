#include "pipeline/step.h"

#include "pipeline/session.h"

namespace flux2 {

Tensor step_velocity(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session, const StepConditions& c,
                     const Tensor& x, const Tensor& time) {
  const auto work = [&](std::span<const Tensor> in) {
    return (*transformer)(
        {.x = in[0], .vec = transformer->condition(in[1], in[2]), .txt = in[3], .rope = Rope{in[4], in[5], c.rope.pairs}});
  };
  const std::vector<Tensor> inputs = {x, time, c.guidance, c.text, c.rope.cosine, c.rope.sine};
  if (!can_capture(*transformer)) return work(inputs).cast(DType::F32);
  return captured(session, transformer, inputs, DType::F32, x.shape(), work);
}

}  // namespace flux2
