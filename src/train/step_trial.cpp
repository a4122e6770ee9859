#include "train/step_trial.h"

#include <numeric>

#include "train/adapters/adapter_network.h"
#include "train/fused_step.h"
#include "train/host_activations.h"
#include "train/network_args.h"
#include "train/trained_image_prompt.h"
#include "train/whole_network.h"

namespace flux2 {

namespace {

std::unique_ptr<TrainedModel> attached(Flux2Transformer& network, Stream& stream, const TrainOptions& options, DType activations,
                                       const BatchShape& shape) {
  if (trains_image_prompt(options))
    return std::make_unique<TrainedImagePrompt>(image_prompt_config(options, network.config, shape.feature_width), stream,
                                                activations, 0);
  if (!options.full) {
    AdapterOptions adapter = parse_network_args(options).adapter;
    adapter.activations = activations;
    return std::make_unique<AdapterNetwork>(network, stream, adapter, 0);
  }
  const DType dtype = options.full_bf16 ? DType::BF16 : DType::F32;
  return std::make_unique<WholeNetwork>(network, stream, WholeNetworkOptions{.dtype = dtype, .freeze = options.freeze});
}

// The network as it is before it gets adapters; they share their weights.
std::shared_ptr<const Flux2Transformer> base_for(const Flux2Transformer& network, const TrainOptions& options) {
  return options.output_preservation ? std::make_shared<Flux2Transformer>(network) : nullptr;
}

}  // namespace

int64_t BatchShape::tokens() const {
  return std::accumulate(references.begin(), references.end(), text_length + size.tokens(),
                         [](int64_t sum, const LatentSize& r) { return sum + r.tokens(); });
}

LoadedBatch BatchShape::blank() const {
  LoadedBatch batch;
  batch.plan.size = size;
  batch.plan.references = references;
  batch.plan.samples.resize(static_cast<size_t>(samples));
  for (size_t i = 0; i < batch.plan.samples.size(); ++i) batch.plan.samples[i].index = i;
  const auto floats = [&](int64_t per_sample) { return std::vector<float>(static_cast<size_t>(samples * per_sample)); };
  batch.latents = floats(kLatentChannels * size.tokens());
  for (const LatentSize& r : references) batch.references.push_back({.size = r, .values = floats(kLatentChannels * r.tokens())});
  batch.text_length = text_length;
  batch.text_width = text_width;
  batch.text = floats(text_length * text_width);
  batch.features = floats(feature_width);
  batch.loss_multiplier.assign(static_cast<size_t>(samples), 1.0f);
  return batch;
}

StepTrial::StepTrial(Flux2Transformer& network, const std::shared_ptr<Stream>& stream, DType activations,
                     const TrainOptions& options, const std::vector<BlockMemory>& memory, const BatchShape& shape,
                     bool is_counted)
    : options_(options),
      batch_(shape.blank()),
      base_(base_for(network, options)),
      model_(attached(network, *stream, options, activations, shape)) {
  ParameterGroup group{"unet", options.learning_rate, {}};
  for (const TrainedParameter& p : model_->parameters()) group.tensors.push_back({p.name, p.leaf.detached()});
  optimiser_ = make_optimiser(options.optimizer_type, options.optimizer_args, {std::move(group)}, 0);
  std::shared_ptr<InputStore> store;
  if (options.gradient_checkpointing_cpu_offload && !stream->device().is_host())
    store =
        std::make_shared<HostActivations>(stream, is_counted ? HostActivations::Copies::Counted : HostActivations::Copies::Real);
  std::function<ImagePromptInputs(const Tensor&)> prompts;
  if (const auto* trained = dynamic_cast<const TrainedImagePrompt*>(model_.get()))
    prompts = [trained](const Tensor& features) { return trained->inputs(features); };
  const std::vector<float> class_text(static_cast<size_t>(shape.text_length * shape.text_width));
  objective_ = std::make_unique<FlowStep>(
      network, *stream,
      FlowStepOptions{.zero_cond_t = options.zero_cond_t,
                      .kv_references = options.kv_references,
                      .preservation = options.output_preservation.value_or(0),
                      .class_text = Tensor::host_copy(class_text.data(), DType::F32, {shape.text_length, shape.text_width}),
                      .base = base_,
                      .image_prompts = std::move(prompts),
                      .activations = activations,
                      .before_block = {},
                      .block_memory = memory,
                      .input_store = std::move(store)},
      [](const Sample&, LatentSize) {
        return Timestep{0.5f, 0.5f, 1.0};
      });
}

StepTrial::~StepTrial() = default;

void StepTrial::step() {
  const auto divisor = static_cast<double>(batch_.size());
  const auto begin = [&](const std::vector<uint64_t>& samples) { model_->begin_pass(samples, true); };
  if (options_.fused_backward_pass) {
    FusedStep fused(*optimiser_, model_->parameters(), 1.0, options_.max_grad_norm);
    objective_->train(objective_->prepare(batch_), divisor, begin, fused.take());
    return;
  }
  const auto result = objective_->train(batch_, divisor, begin);
  std::vector<Tensor> gradients;
  for (const TrainedParameter& p : model_->parameters())
    gradients.push_back(result.gradients.contains(p.leaf) ? result.gradients[p.leaf] : Tensor());
  gradient_norm(gradients);
  optimiser_->step(gradients, 1.0, 1.0);
}

int64_t counted_step_bytes(const Flux2Transformer& network, DType activations, const TrainOptions& options,
                           const std::vector<BlockMemory>& memory, const BatchShape& shape) {
  Flux2Transformer copy = network;
  const auto stream = copy.img_in.weight.device().open_stream();
  StepTrial trial(copy, stream, activations, options, memory, shape, true);
  trial.step();
  return static_cast<int64_t>(stream->peak_bytes());
}

}  // namespace flux2
