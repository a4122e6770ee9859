#include "train/optimiser/kernel_optimiser.h"
#include "train/optimiser/optimiser_names.h"

namespace flux2 {

std::unique_ptr<Optimiser> make_optimiser(const std::string& type, const std::vector<std::string>& args,
                                          std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all) {
  const OptimiserKind kind = optimiser_named(type);
  PythonOptions options("optimizer_args", args);
  std::unique_ptr<Optimiser> made = [&] {
    switch (kind) {
      case OptimiserKind::AdamW: return make_adamw(options, std::move(groups), seed, decay_all, false);
      case OptimiserKind::AdamW8bit: return make_adamw(options, std::move(groups), seed, decay_all, true);
      case OptimiserKind::Lion: return make_lion(options, std::move(groups), seed, decay_all, false);
      case OptimiserKind::Lion8bit: return make_lion(options, std::move(groups), seed, decay_all, true);
      case OptimiserKind::AdEmaMix: return make_ademamix(options, std::move(groups), seed, decay_all, false);
      case OptimiserKind::AdEmaMix8bit: return make_ademamix(options, std::move(groups), seed, decay_all, true);
      case OptimiserKind::Sgd: return make_sgd(options, std::move(groups), seed, decay_all);
      case OptimiserKind::Prodigy: return make_prodigy(options, std::move(groups), seed, decay_all);
      case OptimiserKind::ScheduleFree: return make_schedule_free(options, std::move(groups), seed, decay_all);
      case OptimiserKind::Adafactor: return make_adafactor(options, std::move(groups), seed, decay_all);
      case OptimiserKind::Came: return make_came(options, std::move(groups), seed, decay_all);
    }
    fail(ErrorCode::Internal, "an optimiser without a constructor");
  }();
  options.finish();
  return made;
}

}  // namespace flux2
