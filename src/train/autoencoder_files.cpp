#include "train/autoencoder_parts.h"
#include "train/run_settings.h"

namespace flux2 {

void AutoencoderRun::Parts::resume(const std::filesystem::path& folder) {
  resume_from({.folder = folder,
               .dataset_hash = in.data->dataset_hash(),
               .base = in.base,
               .restore =
                   [&](const NamedTensors& weights) {
                     network->restore({weights.begin(), weights.end()});
                   },
               .log = in.log});
}

void AutoencoderRun::Parts::save_checkpoint(const std::filesystem::path& file, int64_t at_epoch) {
  RunFacts facts = facts_at({step, at_epoch, total_steps, total_epochs}, in.facts, options, *in.data);
  if (options.metadata_arch.empty()) facts.modelspec.architecture = "Flux.2-autoencoder";
  const CheckpointFormat format{
      .precision = options.save_precision == "float" ? std::nullopt : std::optional(save_precision_named(options.save_precision)),
      .metadata = options.no_metadata ? MetadataKind::Minimal : MetadataKind::Full,
      .more = vae_metadata(in.autoencoder->config)};
  write_weights(file, [&](const std::filesystem::path& path) {
    if (network->trains_encoder()) {
      const LatentStatistics s =
          measure_latents(network->plain(), *in.data, seed, options.vae_statistics, *in.stream, in.activations);
      network->set_statistics(s.mean, s.variance);
    }
    const WrittenCheckpoint written = write_checkpoint(path, network->tensors(), facts, format);
    log->checkpoint({.step = step, .epoch = at_epoch, .file = written.file, .sha256 = written.sha256, .bytes = written.bytes});
  });
}

void AutoencoderRun::Parts::save_state(const std::filesystem::path& folder) {
  write_run_state(folder, {in.program, in.data->dataset_hash(), in.base},
                  [&] { return StateTensors{.full_model = true, .weights = network->weights(), .optimizer = {}, .ema = {}}; });
}

}  // namespace flux2
