#include "pipeline/denoise.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "ops/view.h"
#include "pipeline/canvas.h"
#include "pipeline/latents.h"
#include "pipeline/seamless.h"
#include "pipeline/step.h"

namespace flux2 {

namespace {

constexpr int64_t kChannels = 128;

// Transposed on the device, which is faster than on the host.
Tensor tokens_of_noise(Session& session, const Request& request, std::span<const std::vector<float>> noise) {
  std::vector<Tensor> pictures;
  for (const auto& planes : noise)
    pictures.push_back(Tensor::from<float>(*session.stream, DType::F32, {1, kChannels, request.tokens()}, planes));
  return permute(concat(pictures, 0), {0, 2, 1}).contiguous();
}

}  // namespace

int64_t tokens_of_pass(const Request& request, const Conditions& conditions) {
  return conditions.text.positive.dim(1) + request.tokens() + (request.reuse_reference_keys ? 0 : conditions.references.count()) +
         conditions.image_prompt_tokens;
}

Denoised denoise(Session& session, const Request& request, const Conditions& conditions,
                 std::span<const std::vector<float>> noise, const Progress& progress) {
  check(request.cache_tolerance == 0 || noise.size() == 1, "{} images share one step cache", noise.size());
  const std::vector<float> sigmas = request.sigmas();
  const int steps = static_cast<int>(sigmas.size()) - 1;
  progress.at(Phase::Denoise, 0, steps);

  Tensor x = tokens_of_noise(session, request, noise);
  std::optional<CanvasBlend> canvas;
  if (conditions.canvas.defined()) {
    canvas.emplace(session, request, conditions.canvas, x);
    x = canvas->noised(sigmas[0]);
  }
  const SeamlessVelocity seamless(*session.stream, request);
  GuidedStep guided(session, request, conditions, static_cast<int64_t>(noise.size()), progress.before_block());
  SamplerRun sampler(request.sampler, sigmas);
  StepCache cache(request.cache_tolerance, sigmas);

  const auto record = [&](const std::string& name, const Tensor& value) {
    if (session.trace)
      session.trace->add_floats(name, to_planes(value.narrowed(0, 0, 1).to_floats(), kChannels),
                                {kChannels, request.rows(), request.columns()});
  };
  if (session.trace) {
    session.trace->add_floats("timesteps", sigmas, {static_cast<int64_t>(sigmas.size())});
    session.trace->add_floats("noise", noise[0], {kChannels, request.rows(), request.columns()});
    if (canvas) record("canvas.latents", conditions.canvas);
    for (size_t k = 0; k < request.image_prompts.size(); ++k) {
      const std::vector<float>& feature = request.image_prompts[k].feature;
      session.trace->add_floats(fmt::format("image_prompts.{}.feature", k), feature, {static_cast<int64_t>(feature.size())});
    }
  }
  for (int i = 0; i < steps; ++i) {
    const auto at = static_cast<size_t>(i);
    record(fmt::format("latents.{}", i), x);
    bool first = true;
    if (guided.jumps_at(at)) cache.start_over();
    Tensor v;
    x = sampler.step(x, at, [&](const Tensor& state, float sigma) {
      v = cache.velocity(at,
                         [&] { return seamless(state, [&](const Tensor& seen) { return guided.velocity(seen, sigma, at); }); });
      if (std::exchange(first, false)) record(fmt::format("velocity.{}", i), v);
      return v;
    });
    if (canvas) x = canvas->kept(x, sigmas[at + 1]);
    session.stream->wait();
    if (progress.step_done) progress.step_done({i + 1, steps, sigmas[at + 1], request.rows(), request.columns(), x, v});
    progress.at(Phase::Denoise, i + 1, steps);
  }
  record(fmt::format("latents.{}", steps), x);
  return {x, cache.use()};
}

}  // namespace flux2
