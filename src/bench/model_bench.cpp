#include "bench/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "bench/bench_inputs.h"
#include "engine/model_cost.h"
#include "engine/rate.h"
#include "pipeline/decode.h"
#include "pipeline/text_states.h"
#include "pipeline/text_to_image.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

using Work = std::function<void()>;

ModelBenchRow measure(Stream& stream, const std::string& kernel, double flop, int repeat, const Work& work) {
  // Memory, algorithms and graphs come into place; where there are no graphs once is enough.
  for (int i = 0; i < (stream.device().prefers_graphs() ? 2 : 1); ++i) work();
  stream.wait();
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    const auto start = Clock::now();
    work();
    stream.wait();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return {kernel, times[times.size() / 2], times.front(), flop, {}};
}

class Bench {
 public:
  Bench(const Engine& engine, const ModelBenchOptions& options)
      : options_(options),
        rows_(options.height / 16),
        columns_(options.width / 16),
        session_(engine.open_session(
            engine.random_model(options.variant, {.transformer = options.step || options.picture,
                                                  .text_encoder = options.text || options.picture,
                                                  .vae = options.decode || options.encode || options.picture}))),
        stream_(*session_->stream) {
    report_.ceiling = product_rate(engine, options.repeat);
  }

  ModelBench run(const Engine& engine) {
    // One large network in memory at a time.
    if (options_.text && session_->models.text_encoder) text();
    if (session_->models.text_encoder) session_->models.text_encoder.let_go();
    session_->captured_work.clear();
    if (options_.step) step();
    if (options_.decode) decode();
    if (options_.encode) encode();
    if (options_.picture && options_.references == 0 && session_->models.text_encoder) picture();
    report_.memory = engine.memory_use(*session_);
    return std::move(report_);
  }

 private:
  // `captured` is how the pipeline runs it, `plain` the same op by op.
  void add(const std::string& kernel, double flop, const Work& captured, const Work& plain) {
    if (stream_.device().prefers_graphs()) {
      report_.rows.push_back(measure(stream_, kernel + ", captured", flop, options_.repeat, captured));
      session_->captured_work.clear();
    }
    add(kernel, flop, plain);
  }
  void add(const std::string& kernel, double flop, const Work& plain) {
    report_.rows.push_back(measure(stream_, kernel, flop, options_.repeat, plain));
    if (options_.per_op) report_.rows.back().ops = stream_.time_ops(plain);
  }

  void text() {
    const auto encoder = session_->models.text_encoder.get();
    const int64_t length = session_->models.text_length;
    std::vector<int32_t> ids, mask;
    for (int64_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<int32_t>(i * 7919 % encoder->config.vocab));
      mask.push_back(i < length / 4);  // a prompt of some length; the rest is padding
    }
    const Tensor id_tensor = Tensor::from<int32_t>(stream_, DType::I32, {1, length}, ids);
    const Tensor mask_tensor = Tensor::from<int32_t>(stream_, DType::I32, {1, length}, mask);
    add(
        "text encoder", text_flop(encoder->config, length), [&] { encode_tokens(encoder, *session_, id_tensor, mask_tensor); },
        [&] { (*encoder)(id_tensor, mask_tensor, session_->activations); });
  }

  void step() {
    const auto transformer = session_->models.transformer.get();
    const StepShape shape{options_.width, options_.height, options_.batch, options_.references};
    const StepInputs inputs = random_step(*session_, shape);
    const auto& [conditions, x, time] = inputs;
    const double flop = options_.batch * step_flop(transformer->config, session_->models.text_length, shape.tokens());
    add(
        "transformer step", flop, [&] { step_velocity(transformer, *session_, conditions, x, time); },
        [&] {
          (*transformer)({.x = inputs.with_references(),
                          .vec = transformer->condition(time, conditions.guidance),
                          .txt = conditions.text,
                          .rope = conditions.rope,
                          .keep = shape.picture_tokens()});
        });
  }

  void decode() {
    const Vae& vae = *session_->models.vae;
    const Tensor tokens = random_tensor(stream_, DType::F32, {1, rows_ * columns_, vae.config.packed_channels()}, "latents");
    add(
        "vae decode", decode_flop(vae, options_.width, options_.height),
        [&] { decode_tokens(session_->models.vae, *session_, tokens, rows_, columns_); },
        [&] { vae.decode(tokens, rows_, columns_); });
  }

  void encode() {
    const Vae& vae = *session_->models.vae;
    const Tensor picture = random_tensor(stream_, session_->activations, {1, options_.height, options_.width, 3}, "picture");
    add("vae encode", encode_flop(vae, options_.width, options_.height), [&] { vae.encode(picture); });
  }

  // Text, denoising, decoding and 8-bit pixels in host memory, as a server has it once everything is warm.
  void picture() {
    Models& models = session_->models;
    const int64_t length = models.text_length;
    const std::vector<int32_t> ids(static_cast<size_t>(length), 42), mask(static_cast<size_t>(length), 1);
    const Tensor id_tensor = Tensor::from<int32_t>(stream_, DType::I32, {1, length}, ids);
    const Tensor mask_tensor = Tensor::from<int32_t>(stream_, DType::I32, {1, length}, mask);
    Request request;
    request.width = options_.width, request.height = options_.height;
    request.steps = options_.steps, request.batch = options_.batch;
    const double flop = text_flop(models.text_encoder.config(), length) +
                        options_.batch * (options_.steps * step_flop(models.transformer.config(), length, rows_ * columns_) +
                                          decode_flop(*models.vae, options_.width, options_.height));
    report_.rows.push_back(measure(stream_, fmt::format("picture, {} steps", options_.steps), flop, options_.repeat, [&] {
      const Tensor states = encode_tokens(models.text_encoder.get(), *session_, id_tensor, mask_tensor);
      request.given_text = states.reshaped({length, states.dim(2)});
      text_to_image(*session_, request, {}, [](const Picture& p) { p.decoded.rgb8(Rounding::Trunc); });
    }));
  }

  const ModelBenchOptions& options_;
  const int64_t rows_, columns_;
  std::unique_ptr<ModelSession> session_;
  Stream& stream_;
  ModelBench report_;
};

}  // namespace

ModelBench bench_model(const Engine& engine, const ModelBenchOptions& options) {
  for (int side : {options.width, options.height})
    check(side >= 64 && side % 16 == 0, "a side of {} pixels: it must be a multiple of 16, at least 64", side);
  check(options.batch > 0 && options.repeat > 0 && options.references >= 0, "batch and repeat are at least 1");
  return Bench(engine, options).run(engine);
}

}  // namespace flux2
