#include "cli/engine_settings.h"

#include "cli/folders.h"

namespace flux2 {

EngineOptions engine_options(Invocation& run) {
  const bool exact = run.settings.choice("profile", {"exact", "fast"}, "fast") == "exact";
  return {.device = run.settings.text("device", "auto"),
          .threads = static_cast<int>(run.settings.integer("threads", 1, 4096).value_or(0)),
          .profile = exact ? Profile::Exact : Profile::Fast,
          .quant = quant_named(run.settings.choice("quant", quant_names(), "none")),
          .plan_folder = plan_folder(run.environment),
          .log = run.console.log()};
}

}  // namespace flux2
