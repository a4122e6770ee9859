#include "pipeline/denoise.h"

#include <fmt/format.h>

#include "nn/timestep.h"
#include "ops/arithmetic.h"
#include "ops/view.h"
#include "pipeline/latents.h"
#include "pipeline/step.h"

namespace flux2 {

namespace {

constexpr int64_t kChannels = 128;

Tensor repeated(const Tensor& x, int64_t n) { return x.expanded(x.shape().with(0, n)).contiguous(); }

Tensor sinusoid(Session& session, const Request& request, int64_t rows, float value) {
  const std::vector<float> arguments(static_cast<size_t>(rows), time_argument(value, request.time_rounding));
  return timestep_embedding(*session.stream, arguments, session.activations);
}

// With guidance the negative half comes first.
StepConditions prepare(const Models& models, Session& session, const Request& request, const TextConditions& text, int64_t pictures) {
  const auto loaded = models.transformer.get();
  const Flux2Transformer& transformer = *loaded;
  const auto project = [&](const Tensor& states) {
    return repeated(transformer.embed_text(states.to(*session.stream).cast(session.activations)), pictures);
  };
  StepConditions c;
  c.text = project(text.positive);
  if (request.cfg) {
    check(text.negative.shape() == text.positive.shape(), "guidance: negative states {} beside {}", text.negative.shape(),
          text.positive.shape());
    c.text = concat({project(text.negative), c.text}, 0);
  }
  if (transformer.config.guidance)
    c.guidance = sinusoid(session, request, c.text.dim(0), static_cast<float>(request.guidance));
  auto positions = text_positions(text.positive.dim(1));
  const auto picture = picture_positions(request.rows(), request.columns());
  positions.insert(positions.end(), picture.begin(), picture.end());
  c.rope = flux2_rope(*session.stream, positions);
  return c;
}

Tensor velocity(const Models& models, Session& session, const Request& request, const StepConditions& c, const Tensor& x, float sigma) {
  const Tensor input = x.cast(session.activations);
  const Tensor v = step_velocity(models.transformer.get(), session, c, request.cfg ? concat({input, input}, 0) : input,
                                 sinusoid(session, request, c.text.dim(0), sigma));
  if (!request.cfg) return v;
  const auto halves = chunk(v, 2, 0);
  return halves[0] + *request.cfg * (halves[1] - halves[0]);
}

}  // namespace

Tensor denoise(const Models& models, Session& session, const Request& request, const TextConditions& text,
               std::span<const std::vector<float>> noise, const Progress& progress) {
  const auto pictures = static_cast<int64_t>(noise.size());
  const std::vector<float> sigmas = make_sigmas(request.schedule, request.tokens(), request.steps, request.shift);
  const int steps = static_cast<int>(sigmas.size()) - 1;
  progress.at(Phase::Denoise, 0, steps);

  std::vector<Tensor> starts;
  for (const auto& planes : noise)
    starts.push_back(Tensor::from<float>(*session.stream, DType::F32, {1, request.tokens(), kChannels}, to_tokens(planes, kChannels)));
  Tensor x = concat(starts, 0);
  const StepConditions conditions = prepare(models, session, request, text, pictures);

  const auto record = [&](const std::string& name, const Tensor& value) {
    if (session.trace)
      session.trace->add_floats(name, to_planes(value.narrowed(0, 0, 1).to_floats(), kChannels),
                                {kChannels, request.rows(), request.columns()});
  };
  if (session.trace) {
    session.trace->add_floats("timesteps", sigmas, {static_cast<int64_t>(sigmas.size())});
    session.trace->add_floats("noise", noise[0], {kChannels, request.rows(), request.columns()});
  }
  for (int i = 0; i < steps; ++i) {
    const auto at = static_cast<size_t>(i);
    record(fmt::format("latents.{}", i), x);
    const Tensor v = velocity(models, session, request, conditions, x, sigmas[at]);
    record(fmt::format("velocity.{}", i), v);
    x = x + static_cast<double>(sigmas[at + 1] - sigmas[at]) * v;
    session.stream->wait();
    progress.at(Phase::Denoise, i + 1, steps);
  }
  record(fmt::format("latents.{}", steps), x);
  return x;
}

}  // namespace flux2
