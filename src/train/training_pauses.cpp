#include <fmt/format.h>

#include "train/training_parts.h"

namespace flux2 {

void TrainingRun::Parts::validate() {
  if (!in.data->has_validation()) {
    if (step == first_step + 1 || step == *options.validate_every_n_steps)
      in.log.warn("validation was asked for, but no dataset is marked `validation`");
    return;
  }
  if (!is_first_rank()) return;
  network->begin_pass({}, false);
  RunValidation report{.step = step, .loss = 0, .by_t = {}};
  const auto times = validation_times(options);
  with_used_weights(false, [&] {
    network->refresh();
    for (const double t : times) {
      double sum = 0, count = 0;
      for (const BatchPlan& plan : in.data->validation()) {
        const LoadedBatch batch = in.data->load(plan);
        sum += objective->validate(batch, t) * static_cast<double>(batch.size());
        count += static_cast<double>(batch.size());
      }
      report.by_t.emplace_back(t, sum / count);
      report.loss += sum / count / static_cast<double>(times.size());
    }
  });
  network->refresh();
  log->validation(report);
}

void TrainingRun::Parts::make_samples(bool by_epoch, int64_t number) {
  double stopped = 0;
  if (is_first_rank() && in.make_samples) {
    const auto make = [&] {
      network->refresh();
      auto copy = std::make_shared<Flux2Transformer>(*in.network);
      network->attach_for_sampling(*copy);
      if (encoder && in.use_text_encoder) in.use_text_encoder(std::make_shared<TextEncoder>(encoder->plain()));
      if (image_prompt && in.use_image_prompt)
        in.use_image_prompt(std::make_shared<const ImagePromptNetwork>(image_prompt->plain()));
      for (const RunSample& sample : in.make_samples({.step = step, .epoch = number, .by_epoch = by_epoch}, std::move(copy)))
        log->sample(sample);
    };
    try {
      with_used_weights(average && options.ema_sample, make);
    } catch (const Error& e) {
      if (!weights_are_whole) throw;  // others are still in the place of those that are trained
      // Training is worth more than an image of it.
      if (e.code() == ErrorCode::Cancelled) stopped = 1;
      else log->warning({.step = step, .text = fmt::format("no sample images: {}", e.what())});
    }
    network->refresh();
  }
  if (in.ranks) in.ranks->all_reduce(std::span<double>(&stopped, 1));  // the others wait for the images
  if (stopped > 0) end_reason = RunEndReason::Interrupted;
}

}  // namespace flux2
