#include "pipeline/step.h"

#include "pipeline/session.h"

namespace flux2 {

Tensor step_velocity(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session, const StepConditions& c,
                     const Tensor& x, const Tensor& time) {
  return captured(
      session, transformer, {x, time, c.guidance, c.text, c.rope.cosine, c.rope.sine}, DType::F32, x.shape(),
      [&](std::span<const Tensor> in) {
        return (*transformer)(
            {.x = in[0], .vec = transformer->condition(in[1], in[2]), .txt = in[3], .rope = Rope{in[4], in[5], c.rope.pairs}});
      });
}

}  // namespace flux2
