#include "app/registry_access.h"
#include "cli/models/models.h"

namespace flux2 {

namespace {

// An option that takes back what was set when its value is empty.
template <class T, class Read>
void take(const Settings& settings, const char* option, std::optional<T>& target, const Read& read) {
  if (!settings.has(option)) return;
  if (settings.text(option).empty()) target.reset();
  else target = read();
}

void take_part(const Invocation& run, const Registry& registry, const char* option, ModelType type, std::string& target) {
  if (!run.settings.has(option)) return;
  const std::string name = run.settings.text(option);
  target.clear();
  if (name.empty()) return;
  const ModelRecord part = record_named(registry, name);
  check(part.type == type, "--{}: {} is of type {}", option, part.name, name_of(part.type));
  target = part.key;
}

}  // namespace

int run_models_edit(Invocation& run) {
  check(run.positional.size() == 1, "models edit needs the name or key of one model");
  Registry registry = open_registry(run);
  ModelRecord r = record_named(registry, run.positional[0]);
  const Settings& settings = run.settings;
  if (settings.has("name")) r.name = settings.text("name");
  if (settings.has("description")) r.description = settings.text("description");
  if (const Setting* triggers = settings.find("trigger")) {
    r.triggers = triggers->values;
    std::erase(r.triggers, "");
  }
  take(settings, "steps", r.defaults.steps, [&] { return *settings.integer("steps", 1, 256); });
  take(settings, "guidance", r.defaults.guidance, [&] { return *settings.number("guidance", 0, 100); });
  take(settings, "width", r.defaults.width, [&] { return *settings.integer("width", 64, 4096); });
  take(settings, "height", r.defaults.height, [&] { return *settings.integer("height", 64, 4096); });
  take(settings, "lora-weight", r.defaults.lora_weight, [&] { return *settings.number("lora-weight", -4, 4); });
  take_part(run, registry, "vae", ModelType::Vae, r.components.vae);
  take_part(run, registry, "text-encoder", ModelType::TextEncoder, r.components.text_encoder);
  take_part(run, registry, "tokenizer", ModelType::Tokenizer, r.components.tokenizer);
  registry.update(r);
  if (run.console.json()) run.console.result(pretty(to_json(r)));
  else run.console.result(r.name);
  return 0;
}

}  // namespace flux2
