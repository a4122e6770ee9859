#include "bench/quant_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace flux2 {

namespace {

struct Step {
  std::vector<float> velocity;
  double seconds = 0;
  int64_t weight_bytes = 0;
  bool in_8_bits = false;  // some attention
};

Step run_step(EngineOptions options, Quant quant, Profile profile, const QuantBenchOptions& bench,
              AttentionBits attention = AttentionBits::Sixteen) {
  options.attention = attention;
  options.quant = quant;
  options.profile = profile;
  const Engine engine(options);
  const auto session = engine.open_session(engine.random_model(bench.variant, {.text_encoder = false, .vae = false}));
  const StepInputs inputs = random_step(*session, bench.shape);
  const auto transformer = session->models.transformer.get();
  Step step;
  Flux2Transformer listed = *transformer;  // handles of the same weights
  listed.visit([&](const Parameter& p) { step.weight_bytes += p.tensor.bytes(); });
  listed = *transformer;
  step.in_8_bits = std::any_of(listed.single_blocks.begin(), listed.single_blocks.end(), [&](const SingleBlock& block) {
    return Attending{.bits = listed.attention_bits}.options(block.in).eight_bits;
  });
  const auto start = std::chrono::steady_clock::now();
  const Tensor v = step_velocity(transformer, *session, inputs.conditions, inputs.x, inputs.time);
  step.velocity = v.to_floats();
  step.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return step;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace

std::vector<QuantBenchRow> bench_quants(const EngineOptions& engine, const QuantBenchOptions& options) {
  const Step reference = run_step(engine, Quant::None, Profile::Exact, options);
  std::vector<QuantBenchRow> rows;
  for (Quant quant : options.quants) {
    const Step fast = run_step(engine, quant, Profile::Fast, options);
    QuantBenchRow row{.quant = quant,
                      .error = relative_error(fast.velocity, reference.velocity),
                      .seconds = fast.seconds,
                      .weight_bytes = fast.weight_bytes};
    if (quant != Quant::None)
      row.weights_error = relative_error(run_step(engine, quant, Profile::Exact, options).velocity, reference.velocity);
    rows.push_back(row);
    if (engine.attention == AttentionBits::Sixteen) continue;
    const Step eight = run_step(engine, quant, Profile::Fast, options, engine.attention);
    if (!eight.in_8_bits) continue;
    row.attention = AttentionBits::Eight;
    row.error = relative_error(eight.velocity, reference.velocity);
    row.attention_error = relative_error(eight.velocity, fast.velocity);
    row.seconds = eight.seconds;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace flux2
