#include "app/registry_access.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

RegisteredPart part_of(const ModelRecord& r) {
  return {.key = r.key,
          .name = r.name,
          .kind = component_kind(r.type),
          .path = r.path,
          .distilled = r.probe.distilled,
          .kv = r.variant.ends_with("-kv"),
          .vae = r.components.vae,
          .text_encoder = r.components.text_encoder,
          .tokenizer = r.components.tokenizer,
          .steps = r.defaults.steps,
          .width = r.defaults.width,
          .height = r.defaults.height,
          .guidance = r.defaults.guidance};
}

RegisteredParts parts_of(const std::vector<ModelRecord>& records) {
  std::vector<RegisteredPart> parts;
  for (const ModelRecord& r : records)
    if (r.type != ModelType::TinyVae && r.state != ModelState::Unsupported) parts.push_back(part_of(r));
  return RegisteredParts(std::move(parts));
}

}  // namespace

Registry open_registry(const AppContext& context) {
  const fs::path data = data_folder(context.environment);
  if (data.empty())
    throw Error(ErrorCode::InvalidArgument, "there is no folder for the registry: neither FLUX2_HOME nor HOME is set",
                "set FLUX2_HOME to a folder");
  return Registry(data);
}

std::optional<Registry> look_into_registry(const AppContext& context) {
  try {
    return Registry::existing(data_folder(context.environment));
  } catch (const Error& e) {
    context.log.warn("{}; {}", e.what(), e.hint().plain());
    return std::nullopt;
  }
}

RegisteredParts registered_parts(const AppContext& context) {
  const auto registry = look_into_registry(context);
  if (!registry) return {};
  try {
    return parts_of(registry->all());
  } catch (const Error& e) {
    context.log.warn("{}; {}", e.what(), e.hint().plain());
    return {};
  }
}

ModelRecord record_named(const Registry& registry, const std::string& name) {
  if (auto found = registry.find(name)) return *found;
  std::vector<std::string> names;
  for (const ModelRecord& r : registry.all()) names.push_back(r.name);
  std::vector<std::string> beginning;
  for (const std::string& n : names)
    if (!name.empty() && n.starts_with(name)) beginning.push_back(n);
  if (beginning.size() == 1) return *registry.find(beginning[0]);
  if (beginning.size() > 1)
    throw Error(ErrorCode::InvalidArgument, fmt::format("\"{}\" is ambiguous: {}", name, fmt::join(beginning, ", ")),
                Hint("give the full name, or the key shown by {0}", {run_command("models list")}));
  throw Error(ErrorCode::NotFound, fmt::format("no registered model is called {}", name),
              names.empty()
                  ? Hint("nothing is registered yet; use {0} or {1}", {run_command("models scan"), run_command("models install")})
                  : Hint(fmt::format("the nearest names are {}", fmt::join(nearest_words(name, names, 3), ", "))));
}

fs::path model_path(const std::string& text, ComponentKind kind, const AppContext& context) {
  std::error_code unreadable;
  if (text.empty() || fs::exists(text, unreadable)) return text;
  const RegisteredParts parts = registered_parts(context);
  const RegisteredPart* part = parts.find(text, kind);
  if (part) return part->path;
  const bool has_part =
      kind == ComponentKind::Transformer || kind == ComponentKind::TextEncoder || kind == ComponentKind::Autoencoder;
  for (const fs::path& bundled : bundled_models(context.environment))
    if (has_part && text == bundled.filename()) return bundled;
  return text;
}

}  // namespace flux2
