#include <fmt/format.h>

#include "train/network_args.h"
#include "train/run_settings.h"
#include "train/training_parts.h"

namespace flux2 {

void TrainingRun::Parts::resume(const std::filesystem::path& folder) {
  resume_from({.folder = folder,
               .dataset_hash = in.data->dataset_hash(),
               .base = in.base,
               .restore =
                   [&](const NamedTensors& weights) {
                     if (image_prompt) image_prompt->restore_statistics({weights.begin(), weights.end()});
                     network->restore({weights.begin(), weights.end()});
                   },
               .log = in.log});
}

void TrainingRun::Parts::save_checkpoint(const std::filesystem::path& file, int64_t at_epoch) {
  RunFacts facts = facts_at({step, at_epoch, total_steps, total_epochs}, in.facts, options, *in.data);
  facts.network.reset();
  if (image_prompt) facts.modelspec.architecture += "/image_prompt";
  else if (!options.full)
    facts.network =
        RunFacts::Network{.module = options.network_module,
                          .dim = adapter.dim,
                          .alpha = adapter.alpha,
                          .dropout = adapter.dropout.element > 0 ? std::optional(adapter.dropout.element) : std::nullopt,
                          .args = network_args_json(options)};
  // A whole model keeps the type of its weights unless another one is asked for.
  const CheckpointFormat format{.precision = options.full && options.save_precision == "float"
                                                 ? std::nullopt
                                                 : std::optional(save_precision_named(options.save_precision)),
                                .metadata = options.no_metadata ? MetadataKind::Minimal : MetadataKind::Full};
  write_weights(file, [&](const std::filesystem::path& path) {
    const WrittenCheckpoint written = write_checkpoint(path, network->tensors(), facts, format);
    if (log)
      log->checkpoint({.step = step, .epoch = at_epoch, .file = written.file, .sha256 = written.sha256, .bytes = written.bytes});
    for (const TrainedModel::Companion& part : network->companions()) {
      const WrittenCheckpoint beside = write_checkpoint(
          path.parent_path() / (path.stem().string() + part.suffix + ".safetensors"), part.tensors, facts, format);
      if (log)
        log->checkpoint({.step = step, .epoch = at_epoch, .file = beside.file, .sha256 = beside.sha256, .bytes = beside.bytes});
    }
  });
}

void TrainingRun::Parts::save_state(const std::filesystem::path& folder) {
  write_run_state(folder, {in.program, in.data->dataset_hash(), in.base}, [&] {
    return StateTensors{.full_model = options.full, .weights = network->state_tensors(), .optimizer = {}, .ema = {}};
  });
}

}  // namespace flux2
