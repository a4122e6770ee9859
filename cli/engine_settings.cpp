#include "cli/engine_settings.h"

#include "cli/folders.h"

namespace flux2 {

namespace {

// --max-vram for a GPU, --max-ram for the CPU; whichever belongs to the device in use. 0: no limit was given.
int64_t memory_limit(const Settings& settings) {
  const std::string device = settings.text("device", "auto");
  const bool cpu = device == "cpu" || (device == "auto" && !gpu_is_there());
  const auto gib = settings.number(cpu ? "max-ram" : "max-vram", 0.1, 1e6);
  return gib ? static_cast<int64_t>(*gib * (1 << 30)) : 0;
}

int64_t decode_tile(const Settings& settings) {
  const std::string tile = settings.text("vae-tile", "auto");
  if (tile == "auto") return -1;
  if (tile == "off") return 0;
  return settings.integer("vae-tile", 128, 4096).value() / 16;
}

}  // namespace

EngineOptions engine_options(Invocation& run) {
  const bool exact = run.settings.choice("profile", {"exact", "fast"}, "fast") == "exact";
  const bool merge = run.settings.choice("lora-mode", {"auto", "runtime", "merge"}, "auto") == "merge";
  return {.device = run.settings.text("device", "auto"),
          .threads = static_cast<int>(run.settings.integer("threads", 1, 4096).value_or(0)),
          .profile = exact ? Profile::Exact : Profile::Fast,
          .quant = quant_named(run.settings.choice("quant", quant_names(), "none")),
          .offload = offload_named(run.settings.choice("offload", offload_names(), "auto")),
          .decode_tile = decode_tile(run.settings),
          .memory_limit = memory_limit(run.settings),
          .adapter_mode = merge ? AdapterMode::Merge : AdapterMode::Runtime,
          .plan_folder = plan_folder(run.environment),
          .log = run.console.log()};
}

}  // namespace flux2
