#include "train/training_parts.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <random>

#include "base/counted_random.h"
#include "train/activation_policy.h"
#include "train/fused_step.h"
#include "train/host_activations.h"
#include "train/initial_weights.h"
#include "train/log/state_folder.h"
#include "train/network_args.h"
#include "train/optimiser/optimiser_names.h"
#include "train/ranks/device_sums.h"
#include "train/whole_network.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

uint64_t random_seed() {
  std::random_device device;
  return device();
}

FlowLoss flow_loss_named(const std::string& name) {
  return name == "huber" ? FlowLoss::Huber : name == "smooth_l1" ? FlowLoss::SmoothL1 : FlowLoss::Mse;
}

}  // namespace

TimestepOptions timestep_options(const TrainOptions& o) {
  const auto bound = [](std::optional<int64_t> t) { return t ? std::optional(static_cast<int>(*t)) : std::nullopt; };
  return {.method = o.timestep_sampling,
          .discrete_flow_shift = o.discrete_flow_shift,
          .sigmoid_scale = o.sigmoid_scale,
          .weighting_scheme = o.weighting_scheme,
          .logit_mean = o.logit_mean,
          .logit_std = o.logit_std,
          .mode_scale = o.mode_scale,
          .min_timestep = bound(o.min_timestep),
          .max_timestep = bound(o.max_timestep),
          .preserve_distribution_shape = o.preserve_distribution_shape,
          .num_timestep_buckets = static_cast<int>(o.num_timestep_buckets.value_or(0)),
          .timestep_offset = o.timestep_offset};
}

TrainingRun::Parts::Parts(TrainingInputs given, TrainOptions chosen) : in(std::move(given)) {
  options = std::move(chosen);
  check_train_options(options);
  check_output_name(options.output_name);
  if (!options.metadata_reso.empty()) {  // a mistake in it must not wait for the first save
    RunFacts probe;
    probe.modelspec.resolution = options.metadata_reso;
    metadata_of(probe);
  }
  names = {options.output_dir, options.output_name};
  ranks = in.ranks ? in.ranks->size() : 1;
  check(ranks == 1 || !options.fused_backward_pass, "fused_backward_pass does not work with several processes");
  seed = options.seed ? static_cast<uint64_t>(*options.seed) : random_seed();
  if (in.ranks) in.ranks->broadcast(std::as_writable_bytes(std::span(&seed, 1)));

  start_weights = options.network_weights;
  // A resumed run continues with the seed of its state, so that a random one is kept.
  std::optional<std::filesystem::path> folder;
  if (options.resume) {
    folder =
        options.resume->empty() || *options.resume == "newest" ? newest_state(names) : std::filesystem::path(*options.resume);
    if (!folder)
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("{} contains no complete state of \"{}\" to resume", options.output_dir, options.output_name),
                  Hint("a run with {0} saves states", {set_option("save_state")}));
    if (const auto weights = musubi_state_weights(*folder)) {
      in.log.warn("{} is a state of musubi-tuner: only its weights are used, counters and optimiser start anew",
                  folder->string());
      start_weights = weights->string();  // not an option of this run: its own states are resumed without it
      folder.reset();
    }
  }
  if (folder && !options.seed) seed = read_state_json(*folder).seed;
  options.seed = static_cast<int64_t>(seed);

  std::shared_ptr<const Flux2Transformer> base;
  if (options.output_preservation || options.distill_steps)
    base = std::make_shared<Flux2Transformer>(*in.network);  // before it gets adapters
  if (options.zero_cond_t || options.kv_references) {
    in.facts.extra["ss_flux2_references"] = options.kv_references ? "kv" : "zero_cond_t";
    if (!in.data->has_references())
      in.log.warn("{} is about reference images, but no dataset has any",
                  options.kv_references ? "kv_references" : "zero_cond_t");
  }
  if (options.full) {
    network = std::make_unique<WholeNetwork>(
        *in.network, *in.stream,
        WholeNetworkOptions{.dtype = options.full_bf16 ? DType::BF16 : DType::F32, .freeze = options.freeze});
    if (in.text_encoder) {
      auto both = std::make_unique<TrainedTextEncoder>(
          std::move(network), *in.text_encoder, in.text_encoder_source, *in.stream,
          TrainedTextEncoderOptions{
              .dtype = options.full_bf16 ? DType::BF16 : DType::F32, .activations = in.activations, .freeze = options.freeze});
      encoder = both.get();
      network = std::move(both);
      in.text_encoder.reset();
    }
    if (options.from_scratch) initialise(network->parameters(), seed);
  } else if (trains_image_prompt(options)) {
    attach_image_prompt();
  } else {
    attach_adapter();
  }

  std::vector<ParameterGroup> groups = {{"unet", options.learning_rate, {}}};
  if (lora_plus_ratio > 0) groups.push_back({"unet plus", options.learning_rate * lora_plus_ratio, {}});
  if (encoder) groups.push_back({"text_encoder", options.text_encoder_lr.value_or(options.learning_rate), {}});
  for (const TrainedParameter& p : network->parameters())
    groups[in_second_group(p) ? 1 : 0].tensors.push_back({p.name, p.leaf.detached()});
  for (const std::string& warning :
       optimiser_warnings(options.optimizer_type, options.optimizer_args, options.lr_scheduler, options.max_grad_norm))
    in.log.warn("{}", warning);
  optimiser =
      make_optimiser(options.optimizer_type, options.optimizer_args, std::move(groups), seed, !options.full || options.decay_all);

  const int64_t batches = (in.data->batches_per_epoch() + ranks - 1) / ranks;
  steps_per_epoch = (batches + options.gradient_accumulation_steps - 1) / options.gradient_accumulation_steps;
  total_steps = options.max_train_epochs ? *options.max_train_epochs * steps_per_epoch : options.max_train_steps;
  total_epochs = (total_steps + steps_per_epoch - 1) / steps_per_epoch;
  schedule = std::make_unique<LearningRateSchedule>(
      LearningRateOptions{.lr_scheduler = options.lr_scheduler,
                          .lr_warmup_steps = options.lr_warmup_steps,
                          .lr_decay_steps = options.lr_decay_steps,
                          .total_steps = total_steps,
                          .lr_scheduler_num_cycles = static_cast<double>(options.lr_scheduler_num_cycles),
                          .lr_scheduler_power = options.lr_scheduler_power,
                          .lr_scheduler_timescale = options.lr_scheduler_timescale,
                          .lr_scheduler_min_lr_ratio = options.lr_scheduler_min_lr_ratio,
                          .lr_scheduler_args = options.lr_scheduler_args});

  if (options.ema_decay) {
    NamedTensors values;
    for (const TrainedParameter& p : network->parameters()) values.emplace_back(p.name, p.leaf);
    average = std::make_unique<WeightAverage>(std::move(values), *options.ema_decay, options.ema_warmup);
  }
  timesteps.emplace(timestep_options(options));
  std::optional<Distillation> distillation;
  if (options.distill_steps) {
    check(in.fixed_text_encoder != nullptr, "distill_steps needs a dataset of drawn scenes");
    distillation = Distillation{.steps = *options.distill_steps,
                                .teacher_steps = options.distill_teacher_steps,
                                .guidance = options.distill_guidance,
                                .reference_guidance = options.distill_reference_guidance,
                                .teacher = base,
                                .empty_caption = in.empty_caption};
  }
  objective = std::make_unique<FlowStep>(*in.network, *in.stream,
                                         FlowStepOptions{.seed = seed,
                                                         .loss = flow_loss_named(options.loss),
                                                         .huber_delta = options.huber_delta,
                                                         .guidance = options.guidance_scale,
                                                         .zero_cond_t = options.zero_cond_t,
                                                         .kv_references = options.kv_references,
                                                         .preservation = options.output_preservation.value_or(0),
                                                         .class_text = in.class_text,
                                                         .base = base,
                                                         .text_states = encoder_states(),
                                                         .image_prompts = image_prompts(),
                                                         .image_prompt_dropout = image_prompt_dropout(),
                                                         .distillation = std::move(distillation),
                                                         .checkpoint_blocks = options.gradient_checkpointing,
                                                         .activations = in.activations,
                                                         .before_block = in.before_block,
                                                         .block_memory = kept_by_blocks(),
                                                         .input_store = input_store()},
                                         [this](const Sample& sample, LatentSize size) { return draw(sample, size); });
  retention = {options.save_every_n_epochs, options.save_every_n_steps,       options.save_last_n_epochs,
               options.save_last_n_steps,   options.save_last_n_epochs_state, options.save_last_n_steps_state};
  if (is_first_rank()) open_folder(in.log);
  if (folder) resume(*folder);
}

std::function<Tensor(const FlowInputs&)> TrainingRun::Parts::encoder_states() const {
  if (in.fixed_text_encoder)
    return [this](const FlowInputs& inputs) {
      return (*in.fixed_text_encoder)(inputs.token_ids.to(*in.stream), inputs.token_mask.to(*in.stream), in.activations);
    };
  if (!encoder) return {};
  return [this](const FlowInputs& inputs) {
    return encoder->states(inputs.token_ids.to(*in.stream), inputs.token_mask.to(*in.stream));
  };
}

std::function<ImagePromptInputs(const Tensor&)> TrainingRun::Parts::image_prompts() const {
  if (!image_prompt) return {};
  return [this](const Tensor& features) { return image_prompt->inputs(features); };
}

double TrainingRun::Parts::image_prompt_dropout() const {
  return image_prompt ? options.image_prompt_dropout.value_or(kUsualImagePromptDropout) : 0;
}

std::vector<BlockMemory> TrainingRun::Parts::kept_by_blocks() const {
  if (!in.block_memory.empty()) return in.block_memory;
  const size_t blocks = in.network->double_blocks.size() + in.network->single_blocks.size();
  return block_memory(activation_policy_of(options).value_or(ActivationPolicy::P1), blocks);
}

// A CPU has nothing to gain from it.
std::shared_ptr<InputStore> TrainingRun::Parts::input_store() const {
  if (!options.gradient_checkpointing_cpu_offload || in.stream->device().is_host()) return nullptr;
  return std::make_shared<HostActivations>(in.stream);
}

void TrainingRun::Parts::attach_adapter() {
  const NetworkArguments arguments = parse_network_args(options);
  adapter = arguments.adapter;
  lora_plus_ratio = arguments.lora_plus_ratio;
  adapter.activations = in.activations;
  if (options.dim_from_weights) AdapterNetwork::take_shapes(start_weights, adapter, in.log);
  auto attached = std::make_unique<AdapterNetwork>(*in.network, *in.stream, adapter, seed);
  if (!start_weights.empty()) attached->start_from(start_weights, in.log);
  network = std::move(attached);
}

void TrainingRun::Parts::attach_image_prompt() {
  require(in.image_prompt.has_value(), "kind image_prompt without the geometry of the adapter");
  auto made = std::make_unique<TrainedImagePrompt>(*in.image_prompt, *in.stream, in.activations, seed,
                                                   feature_statistics(*in.data, seed));
  if (!start_weights.empty()) made->start_from(start_weights, in.log);
  in.facts.extra[kImagePromptMetadata] = made->config().metadata();
  image_prompt = made.get();
  network = std::move(made);
}

Timestep TrainingRun::Parts::draw(const Sample& sample, LatentSize size) const {
  std::optional<double> stratum;
  if (const int buckets = timesteps->options().num_timestep_buckets; buckets > 0) {
    const int64_t count = in.data->samples_per_epoch(), number = static_cast<int64_t>(sample.index) / count;
    const std::lock_guard lock(strata_mutex);
    auto found = strata.find(number);
    if (found == strata.end()) {
      if (strata.size() == 2) strata.erase(strata.begin());
      found = strata.emplace(number, StratifiedTimesteps(seed, static_cast<uint64_t>(number), 0, count, buckets)).first;
    }
    stratum = found->second.at(static_cast<int64_t>(sample.index) % count);
  }
  return timesteps->sample(seed, sample.index, size.rows, size.columns, stratum);
}

RunEnd TrainingRun::Parts::run() {
  began = Clock::now();
  in.facts.session_id = CountedRandom(seed, 0, static_cast<uint64_t>(unix_now())).words(0)[0];
  in.facts.started_at = unix_now();
  if (is_first_rank()) {
    log.emplace(RunLogOptions{.output_dir = options.output_dir,
                              .output_name = options.output_name,
                              .jsonl = options.jsonl,
                              .logging_dir = options.logging_dir,
                              .log_prefix = options.log_prefix,
                              .tracker_name = options.log_tracker_name.empty() ? (options.full ? "fine-tuning" : "network_train")
                                                                               : options.log_tracker_name,
                              .log_config = options.log_config,
                              .resumed_step = resumed ? std::optional(step) : std::nullopt,
                              .losses = losses,
                              .elapsed_s = elapsed_before,
                              .report = true,
                              .on_event = in.on_event,
                              .now = {},
                              .log = in.log});
    log->start({.model = in.data->model().full_name,
                .modules = static_cast<int64_t>(network->modules()),
                .parameters = network->parameter_count(),
                .items = in.data->training_items(),
                .batches_per_epoch = in.data->batches_per_epoch(),
                .epochs = total_epochs,
                .steps = total_steps,
                .program = in.program,
                .device = in.device_name,
                .plan = {},
                .options = train_options_json(options)});
  }
  try {
    if (options.sample_at_first && !resumed) make_samples(true, 0);
    const int64_t rank = in.ranks ? in.ranks->rank() : 0;
    batches = std::make_unique<BatchQueue>(*in.data, seed,
                                           BatchQueue::Place{.epoch = epoch, .micro = micro, .rank = rank, .ranks = ranks},
                                           [this](LoadedBatch batch) { return objective->prepare(std::move(batch)); });
    while (!finished()) train_epoch();
    batches.reset();
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (!error || error->code() != ErrorCode::Cancelled) {
      if (in.ranks) in.ranks->abort(e.what());
      end_after_error(
          e.what(), in.log,
          {[&] { save_checkpoint(names.step_checkpoint(step), epoch); }, [&] { save_state(names.step_state(step)); }});
      throw;
    }
    end_reason = RunEndReason::Interrupted;  // in the middle of a step: weights are those of the last whole step
  }
  const bool done = settle_end();
  if (is_first_rank() && !drops) {
    save_checkpoint(done ? names.last_checkpoint() : names.step_checkpoint(step), done ? total_epochs : epoch);
    if (!done || options.save_state || options.save_state_on_train_end)
      save_state(done ? names.last_state() : names.step_state(step));
  }
  if (in.ranks) in.ranks->barrier();
  RunEnd end{.reason = end_reason.value_or(RunEndReason::Done), .step = step, .message = end_message};
  if (log) log->end(end);
  return end;
}

void TrainingRun::Parts::train_epoch() {
  const int64_t count = batches->per_epoch(), accumulation = options.gradient_accumulation_steps;
  if (micro >= count) {  // a state of a run with fewer ranks, whose epochs have more micro-steps
    ++epoch;
    micro = 0;
  }
  while (!finished()) {
    std::vector<MicroStep> group;
    const int64_t first = micro, behind = step;
    try {
      for (; micro < count && static_cast<int64_t>(group.size()) < accumulation; ++micro) group.push_back(batches->next());
      one_step(group, first);
    } catch (...) {
      if (step == behind) micro = first;  // a state that is saved now repeats the step that was not finished
      throw;
    }
    const bool epoch_ends = micro >= count;
    if (epoch_ends) {
      ++epoch;
      micro = 0;
    }
    after_step(epoch_ends);
    if (epoch_ends) break;
  }
}

void TrainingRun::Parts::one_step(const std::vector<MicroStep>& group, int64_t first_micro) {
  const auto start = Clock::now();
  RunStep report{.step = step + 1, .epoch = epoch + 1, .micro_in_epoch = first_micro};
  const std::vector<TrainedParameter>& parameters = network->parameters();
  std::vector<Tensor> gradients(parameters.size());
  const double factor = rate_factor();
  std::optional<FusedStep> fused;
  if (options.fused_backward_pass) {
    fused.emplace(*optimiser, parameters, factor, options.max_grad_norm);
    weights_are_whole = false;
  }
  int64_t seen = 0;
  for (const MicroStep& one : group) {
    double loss = 0;
    const double samples = one.samples;
    seen += static_cast<int64_t>(samples);
    if (!one.passes.empty()) {
      const FlowStep::Result result = objective->train(
          one.passes, samples * static_cast<double>(options.gradient_accumulation_steps),
          [&](const std::vector<uint64_t>& indices) { network->begin_pass(indices, true); },
          fused ? fused->take() : TakeGradient());
      for (size_t s = 0; s < result.losses.size(); ++s) {
        loss += result.losses[s] / samples;
        report.samples.push_back({result.times[s], result.losses[s]});
      }
      report.tokens += result.tokens;
      for (size_t p = 0; p < parameters.size(); ++p) {
        if (!result.gradients.contains(parameters[p].leaf)) continue;
        const Tensor& g = result.gradients[parameters[p].leaf];
        if (!gradients[p].defined()) {
          gradients[p] = g;
        } else {
          g.device().kernels().binary({Binary::Add, gradients[p], g, gradients[p]});
        }
      }
    }
    report.losses.push_back(loss);
  }
  if (in.ranks && ranks > 1) in.ranks->all_reduce(std::span<double>(report.losses));
  if (in.device_sums) {
    std::vector<Shape> shapes;
    shapes.reserve(parameters.size());
    for (const TrainedParameter& p : parameters) shapes.push_back(p.leaf.shape());
    sum_on_device(*in.device_sums, *in.stream, shapes, gradients);
  } else if (in.ranks && ranks > 1) {
    std::vector<float> flat;
    for (size_t p = 0; p < parameters.size(); ++p) {
      const std::vector<float> values =
          gradients[p].defined() ? gradients[p].to_floats() : std::vector<float>(static_cast<size_t>(parameters[p].leaf.numel()));
      flat.insert(flat.end(), values.begin(), values.end());
    }
    in.ranks->all_reduce(std::span<float>(flat));
    size_t at = 0;
    for (size_t p = 0; p < parameters.size(); ++p) {
      const Tensor& leaf = parameters[p].leaf;
      const auto length = static_cast<size_t>(leaf.numel());
      gradients[p] = Tensor::from(*in.stream, DType::F32, leaf.shape(), std::span<const float>(flat).subspan(at, length));
      at += length;
    }
  }
  // The optimiser's order: LoRA+ has the fast matrices in a group of their own.
  std::vector<Tensor> ordered;
  for (const bool second : {false, true})
    for (size_t p = 0; p < parameters.size(); ++p)
      if (in_second_group(parameters[p]) == second) ordered.push_back(gradients[p]);
  const double norm = fused ? fused->norm() : gradient_norm(ordered);
  report.grad_norm = norm;
  if (fused && !fused->skipped().empty() && log)
    log->warning(
        {.step = step + 1,
         .text = fmt::format("step {}: the gradient of {} is not finite, so it was not changed", step + 1, fused->skipped())});
  if (fused ? fused->began() : std::isfinite(norm)) {
    const double limit = options.max_grad_norm;
    const double scale = limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0;
    weights_are_whole = false;
    if (!fused) optimiser->step(ordered, factor, scale);
    ++schedule_step;
    network->refresh();
    report.lr.emplace_back("unet", options.learning_rate * factor);
    if (lora_plus_ratio > 0) report.lr.emplace_back("unet plus", options.learning_rate * lora_plus_ratio * factor);
    if (encoder) report.lr.emplace_back("text_encoder", options.text_encoder_lr.value_or(options.learning_rate) * factor);
    report_own_rates(report);
    if (options.scale_weight_norms) {
      const auto limited = network->limit_norms(*options.scale_weight_norms);
      report.norm_limit = RunStep::NormLimit{limited.scaled, limited.mean, limited.largest};
    }
    if (average) {
      average->update(step + 1);
      report.ema_decay = average->decay_at(step + 1);
    }
  } else {
    report.skipped = true;
    if (log)
      log->warning(
          {.step = step + 1, .text = fmt::format("step {}: the gradient is not finite, so no weight was changed", step + 1)});
  }
  bad_steps = std::isfinite(norm) ? 0 : bad_steps + 1;
  if (bad_steps >= options.nan_limit) {
    end_reason = RunEndReason::Nan;
    end_message = fmt::format("{} steps in a row had no finite gradient; try a lower learning rate", bad_steps);
  }
  in.stream->wait();
  weights_are_whole = true;
  ++step;
  samples_seen += seen;
  report.seconds = seconds_since(start);
  if (in.memory) {
    const auto [device, host] = in.memory();
    if (device > 0) report.device_gib = device;
    report.host_gib = host;
  }
  if (log) log->step(report);
}

void TrainingRun::Parts::after_step(bool epoch_ends) {
  const auto due = [](std::optional<int64_t> every, int64_t now) { return every && now % *every == 0; };
  const bool last = step >= total_steps;
  if (options.validate_every_n_steps && (due(options.validate_every_n_steps, step) || last)) validate();

  // All ranks must come to the same decision, so what one of them wants, all do.
  const StopRequest stop = in.stop ? in.stop() : StopRequest::None;
  const bool late = options.max_time && seconds_since(began) >= 60 * *options.max_time;
  std::array<double, 4> wishes = {stop == StopRequest::End || stop == StopRequest::Drop ? 1.0 : 0.0, late ? 1.0 : 0.0,
                                  stop == StopRequest::Save ? 1.0 : 0.0, stop == StopRequest::Drop ? 1.0 : 0.0};
  if (in.ranks) in.ranks->all_reduce(std::span<double>(wishes));
  if (wishes[0] > 0) end_reason = end_reason.value_or(RunEndReason::Interrupted);
  if (wishes[1] > 0) end_reason = end_reason.value_or(RunEndReason::Time);
  const bool save_now = wishes[2] > 0;
  if (wishes[3] > 0) drops = true;

  const bool sample_by_step = due(options.sample_every_n_steps, step);
  const bool sample_by_epoch = epoch_ends && due(options.sample_every_n_epochs, epoch);
  if (sample_by_step) make_samples(false, epoch);
  if (is_first_rank() && !last && !end_reason) {
    const bool by_step = due(options.save_every_n_steps, step);
    if (by_step || save_now) {
      save_checkpoint(names.step_checkpoint(step), epoch);
      if (options.save_state || save_now) save_state(names.step_state(step));
      if (by_step) removed(prune_after_step(names, retention, step, in.log));
    }
    if (epoch_ends && due(options.save_every_n_epochs, epoch)) {
      save_checkpoint(names.epoch_checkpoint(epoch), epoch);
      if (options.save_state) save_state(names.epoch_state(epoch));
      removed(prune_after_epoch(names, retention, epoch, in.log));
    }
  }
  if (epoch_ends && log) log->epoch({.step = step, .epoch = epoch});
  // A moment that is due by step and by epoch is sampled once.
  if (sample_by_epoch && !sample_by_step) make_samples(true, epoch);
}

TrainingRun::TrainingRun(TrainingInputs inputs, TrainOptions options)
    : parts_(std::make_unique<Parts>(std::move(inputs), std::move(options))) {}

TrainingRun::~TrainingRun() = default;

TrainingRun::Totals TrainingRun::totals() const {
  const Parts& p = *parts_;
  return {.modules = static_cast<int64_t>(p.network->modules()),
          .parameters = p.network->parameter_count(),
          .steps = p.total_steps,
          .epochs = p.total_epochs,
          .steps_per_epoch = p.steps_per_epoch,
          .first_step = p.step};
}

RunEnd TrainingRun::run() { return parts_->run(); }

std::filesystem::path TrainingRun::last_file() const { return parts_->last_file; }

}  // namespace flux2
