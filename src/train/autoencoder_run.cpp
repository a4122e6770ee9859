#include "train/autoencoder_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <random>

#include "image/write_image.h"
#include "train/autoencoder_parts.h"
#include "train/data/ordered_workers.h"
#include "train/initial_weights.h"
#include "train/log/state_folder.h"
#include "train/optimiser/optimiser_names.h"
#include "train/run_settings.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSampleImages = 4;  // reconstructions at each moment

uint64_t seed_of(const TrainOptions& options, const std::optional<std::filesystem::path>& state) {
  if (options.seed) return static_cast<uint64_t>(*options.seed);
  if (state) return read_state_json(*state).seed;  // a random one is kept
  return std::random_device()();
}

Image side_by_side(const Image& left, const Image& right) {
  Image both(left.width + right.width, left.height, 3);
  for (int y = 0; y < left.height; ++y) {
    std::copy_n(left.row(y), left.row_bytes(), both.row(y));
    std::copy_n(right.row(y), right.row_bytes(), both.row(y) + left.row_bytes());
  }
  return both;
}

}  // namespace

void check_autoencoder_options(const TrainOptions& o) {
  check(o.vae_crop >= 0 && o.vae_crop % 16 == 0, "vae_crop must be a multiple of 16, not {}", o.vae_crop);
  check(o.vae_statistics >= 1, "vae_statistics must be at least 1, not {}", o.vae_statistics);
  for (const auto& [name, weight] : {std::pair{"vae_l1", o.vae_l1}, std::pair{"vae_mse", o.vae_mse},
                                     std::pair{"vae_edges", o.vae_edges}, std::pair{"vae_kl", o.vae_kl}})
    check(std::isfinite(weight) && weight >= 0, "{} must not be negative, not {}", name, weight);
  check(o.vae_l1 + o.vae_mse + o.vae_edges > 0, "vae_l1, vae_mse and vae_edges are all 0, so there is nothing to learn");
  check(o.ranks == 1, "the autoencoder is trained in one process; leave out ranks");
  check(!o.gradient_checkpointing, "gradient_checkpointing is for the transformer; use a smaller vae_crop or batch_size instead");
  check(o.sample_prompts.empty(), "sample_prompts is for the transformer; the samples of an autoencoder are reconstructions");
  check(o.base_weights.empty(), "base_weights are adapters for the transformer");
}

AutoencoderRun::Parts::Parts(AutoencoderInputs given, TrainOptions chosen) : in(std::move(given)) {
  options = std::move(chosen);
  check_train_options(options);
  check_autoencoder_options(options);
  check_output_name(options.output_name);
  names = {options.output_dir, options.output_name};
  std::optional<std::filesystem::path> folder;
  if (options.resume) {
    folder =
        options.resume->empty() || *options.resume == "newest" ? newest_state(names) : std::filesystem::path(*options.resume);
    check(folder.has_value(), "{} contains no complete state of \"{}\" to resume", options.output_dir, options.output_name);
  }
  seed = seed_of(options, folder);
  options.seed = static_cast<int64_t>(seed);

  network = std::make_unique<TrainedAutoencoder>(
      *in.autoencoder, in.source, *in.stream,
      TrainedAutoencoderOptions{
          .dtype = options.full_bf16 ? DType::BF16 : DType::F32, .activations = in.activations, .freeze = options.freeze});
  if (options.from_scratch) initialise(network->parameters(), seed);
  ParameterGroup group{"vae", options.learning_rate, {}};
  for (const TrainedParameter& p : network->parameters()) group.tensors.push_back({p.name, p.leaf.detached()});
  for (const std::string& warning :
       optimiser_warnings(options.optimizer_type, options.optimizer_args, options.lr_scheduler, options.max_grad_norm))
    in.log.warn("{}", warning);
  optimiser = make_optimiser(options.optimizer_type, options.optimizer_args, {std::move(group)}, seed, options.decay_all);

  const int64_t accumulation = options.gradient_accumulation_steps;
  steps_per_epoch = (in.data->batches_per_epoch() + accumulation - 1) / accumulation;
  total_steps = options.max_train_epochs ? *options.max_train_epochs * steps_per_epoch : options.max_train_steps;
  total_epochs = (total_steps + steps_per_epoch - 1) / steps_per_epoch;
  schedule = std::make_unique<LearningRateSchedule>(learning_rate_options(options, total_steps));
  if (options.ema_decay) average = std::make_unique<WeightAverage>(network->weights(), *options.ema_decay, options.ema_warmup);
  objective = std::make_unique<AutoencoderStep>(
      *in.stream, AutoencoderStepOptions{.seed = seed,
                                         .loss = {options.vae_l1, options.vae_mse, options.vae_edges, options.vae_kl},
                                         .activations = in.activations});
  retention = retention_of(options);
  open_folder(in.log);
  if (folder) resume(*folder);
}

RunEnd AutoencoderRun::Parts::run() {
  began = Clock::now();
  in.facts.session_id = std::random_device()();
  in.facts.started_at = unix_now();
  in.facts.network.reset();
  log.emplace(RunLogOptions{.output_dir = options.output_dir,
                            .output_name = options.output_name,
                            .jsonl = options.jsonl,
                            .logging_dir = options.logging_dir,
                            .log_prefix = options.log_prefix,
                            .tracker_name = options.log_tracker_name.empty() ? "fine-tuning" : options.log_tracker_name,
                            .log_config = options.log_config,
                            .resumed_step = resumed ? std::optional(step) : std::nullopt,
                            .losses = losses,
                            .elapsed_s = elapsed_before,
                            .report = true,
                            .on_event = in.on_event,
                            .now = {},
                            .log = in.log});
  log->start({.model = in.data->model().full_name + " autoencoder",
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
  try {
    if (options.sample_at_first && !resumed) make_samples(true, 0);
    while (!finished()) train_epoch();
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (!error || error->code() != ErrorCode::Cancelled) {
      end_after_error(
          e.what(), in.log,
          {[&] { save_checkpoint(names.step_checkpoint(step), epoch); }, [&] { save_state(names.step_state(step)); }});
      throw;
    }
    end_reason = RunEndReason::Interrupted;
  }
  const bool done = settle_end();
  if (!drops) {
    save_checkpoint(done ? names.last_checkpoint() : names.step_checkpoint(step), done ? total_epochs : epoch);
    if (!done || options.save_state || options.save_state_on_train_end)
      save_state(done ? names.last_state() : names.step_state(step));
  }
  RunEnd end{.reason = end_reason.value_or(RunEndReason::Done), .step = step, .message = end_message};
  log->end(end);
  return end;
}

void AutoencoderRun::Parts::train_epoch() {
  const int64_t count = in.data->batches_per_epoch();
  if (micro >= count) {  // a state of a run whose epochs have more batches
    ++epoch;
    micro = 0;
  }
  const std::vector<BatchPlan> plans = in.data->epoch(seed, epoch);
  const auto begin = static_cast<size_t>(micro);
  OrderedWorkers<LoadedBatch> reader(plans.size() - begin, 1, [&](size_t i) { return in.data->load(plans[begin + i]); });
  while (!finished()) {
    std::vector<LoadedBatch> group;
    const int64_t first = micro, behind = step;
    try {
      for (; micro < count && static_cast<int64_t>(group.size()) < options.gradient_accumulation_steps; ++micro)
        group.push_back(std::move(*reader.next()));
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

void AutoencoderRun::Parts::one_step(const std::vector<LoadedBatch>& group, int64_t first_micro) {
  const auto start = Clock::now();
  RunStep report{.step = step + 1, .epoch = epoch + 1, .micro_in_epoch = first_micro};
  const std::vector<TrainedParameter>& parameters = network->parameters();
  std::vector<Tensor> gradients(parameters.size());
  int64_t seen = 0;
  for (const LoadedBatch& batch : group) {
    const auto samples = static_cast<double>(batch.size());
    const double divisor = samples * static_cast<double>(options.gradient_accumulation_steps);
    const AutoencoderStep::Result result = objective->train(network->recorded(), batch, divisor);
    double loss = 0;
    for (const double value : result.losses) loss += value / samples;
    report.losses.push_back(loss);
    report.tokens += batch.size() * batch.plan.size.tokens();
    seen += batch.size();
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (!result.gradients.contains(parameters[p].leaf)) continue;
      const Tensor& g = result.gradients[parameters[p].leaf];
      if (!gradients[p].defined()) gradients[p] = g;
      else g.device().kernels().binary({Binary::Add, gradients[p], g, gradients[p]});
    }
  }
  weights_are_whole = false;
  take_step(gradients, report);
  in.stream->wait();
  weights_are_whole = true;
  ++step;
  samples_seen += seen;
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (in.memory) {
    const auto [device, host] = in.memory();
    if (device > 0) report.device_gib = device;
    report.host_gib = host;
  }
  log->step(report);
}

void AutoencoderRun::Parts::take_step(const std::vector<Tensor>& gradients, RunStep& report) {
  const double norm = gradient_norm(gradients);
  report.grad_norm = norm;
  if (!std::isfinite(norm)) {
    report.skipped = true;
    log->warning(
        {.step = step + 1, .text = fmt::format("step {}: the gradient is not finite, so no weight was changed", step + 1)});
    if (++bad_steps >= options.nan_limit) {
      end_reason = RunEndReason::Nan;
      end_message = fmt::format("{} steps in a row had no finite gradient; try a lower learning rate", bad_steps);
    }
    return;
  }
  const double limit = options.max_grad_norm;
  const double factor = rate_factor();
  optimiser->step(gradients, factor, limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0);
  ++schedule_step;
  report.lr.emplace_back("vae", options.learning_rate * factor);
  report_own_rates(report);
  if (average) {
    average->update(step + 1);
    report.ema_decay = average->decay_at(step + 1);
  }
  bad_steps = 0;
}

void AutoencoderRun::Parts::after_step(bool epoch_ends) {
  const auto due = [](std::optional<int64_t> every, int64_t now) { return every && now % *every == 0; };
  const bool last = step >= total_steps;
  if (options.validate_every_n_steps && (due(options.validate_every_n_steps, step) || last)) validate();
  const StopRequest stop = in.stop ? in.stop() : StopRequest::None;
  if (stop == StopRequest::Drop) drops = true;
  if (stop == StopRequest::End || stop == StopRequest::Drop) end_reason = end_reason.value_or(RunEndReason::Interrupted);
  if (options.max_time && std::chrono::duration<double>(Clock::now() - began).count() >= 60 * *options.max_time)
    end_reason = end_reason.value_or(RunEndReason::Time);
  const bool save_now = stop == StopRequest::Save;

  const bool sample_by_step = due(options.sample_every_n_steps, step);
  if (sample_by_step) make_samples(false, epoch);
  if (!last && !end_reason) {
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
  if (epoch_ends) log->epoch({.step = step, .epoch = epoch});
  if (epoch_ends && due(options.sample_every_n_epochs, epoch) && !sample_by_step) make_samples(true, epoch);
}

void AutoencoderRun::Parts::validate() {
  if (!in.data->has_validation()) {
    if (step == first_step + 1 || step == *options.validate_every_n_steps)
      in.log.warn("validation was asked for, but no dataset is marked `validation`");
    return;
  }
  double loss = 0, count = 0;
  with_used_weights(false, [&] {
    const Vae vae = network->plain();
    for (const BatchPlan& plan : in.data->validation())
      for (const double value : objective->reconstruct(vae, in.data->load(plan)).losses) {
        loss += value;
        ++count;
      }
  });
  log->validation({.step = step, .loss = loss / count, .by_t = {}});
}

void AutoencoderRun::Parts::make_samples(bool by_epoch, int64_t number) {
  const auto make = [&] {
    const Vae vae = network->plain();
    int64_t made = 0;
    // The same images at every moment: those of validation, else the first of the first epoch.
    const std::vector<BatchPlan> plans = in.data->has_validation() ? in.data->validation() : in.data->epoch(seed, 0);
    for (size_t p = 0; p < plans.size() && made < kSampleImages; ++p) {
      const LoadedBatch batch = in.data->load(plans[p]);
      const AutoencoderStep::Reconstruction r = objective->reconstruct(vae, batch);
      for (size_t i = 0; i < r.images.size() && made < kSampleImages; ++i, ++made) {
        const std::filesystem::path file = names.sample({.by_epoch = by_epoch,
                                                         .number = by_epoch ? number : step,
                                                         .index = made,
                                                         .unix_time = static_cast<int64_t>(unix_now()),
                                                         .seed = {}});
        std::filesystem::create_directories(file.parent_path());
        save_image(file, encode_png(side_by_side(r.originals[i], r.images[i])));
        log->sample({.step = step,
                     .epoch = number,
                     .index = made,
                     .file = file,
                     .prompt = fmt::format("{}: {:.2f} dB", in.data->items()[batch.plan.samples[i].item].stem, r.psnr[i]),
                     .seed = seed});
      }
    }
  };
  try {
    with_used_weights(average && options.ema_sample, make);
  } catch (const Error& e) {
    if (!weights_are_whole) throw;  // others are still in the place of those that are trained
    if (e.code() == ErrorCode::Cancelled) end_reason = RunEndReason::Interrupted;
    else log->warning({.step = step, .text = fmt::format("no sample images: {}", e.what())});
  }
}

AutoencoderRun::AutoencoderRun(AutoencoderInputs inputs, TrainOptions options)
    : parts_(std::make_unique<Parts>(std::move(inputs), std::move(options))) {}

AutoencoderRun::~AutoencoderRun() = default;

TrainingRun::Totals AutoencoderRun::totals() const {
  const Parts& p = *parts_;
  return {.modules = static_cast<int64_t>(p.network->modules()),
          .parameters = p.network->parameter_count(),
          .steps = p.total_steps,
          .epochs = p.total_epochs,
          .steps_per_epoch = p.steps_per_epoch,
          .first_step = p.step};
}

RunEnd AutoencoderRun::run() { return parts_->run(); }

std::filesystem::path AutoencoderRun::last_file() const { return parts_->last_file; }

}  // namespace flux2
