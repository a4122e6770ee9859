#include "bench/bench_inputs.h"

#include "nn/timestep.h"
#include "ops/view.h"
#include "pipeline/latents.h"

namespace flux2 {

StepInputs random_step(const Session& session, const StepShape& shape) {
  const auto transformer = session.models.transformer.get();
  const Flux2Config& config = transformer->config;
  Stream& stream = *session.stream;
  const DType dtype = session.activations;
  const int64_t text_length = session.models.text_length;

  auto positions = text_positions(text_length);
  for (int k = 0; k <= shape.references; ++k) {
    const auto picture = picture_positions(shape.height / 16, shape.width / 16, 10 * k);
    positions.insert(positions.end(), picture.begin(), picture.end());
  }
  const std::vector<float> time(static_cast<size_t>(shape.batch), 700.0f);
  const Tensor sinusoid = timestep_embedding(stream, time, dtype);
  const auto latents = [&](int64_t tokens, const char* name) {
    return random_tensor(stream, dtype, {shape.batch, tokens, config.channels}, name);
  };
  const int64_t references = shape.tokens() - shape.picture_tokens();
  const Tensor states = random_tensor(stream, dtype, {shape.batch, text_length, config.text_width}, "text");
  return {{.text = transformer->embed_text(states),
           .guidance = config.guidance ? sinusoid : Tensor(),
           .references = references > 0 ? latents(references, "references") : Tensor(),
           .rope = flux2_rope(stream, positions)},
          latents(shape.picture_tokens(), "latents"),
          sinusoid};
}

Tensor StepInputs::with_references() const { return conditions.references.defined() ? concat({x, conditions.references}, 1) : x; }

}  // namespace flux2
