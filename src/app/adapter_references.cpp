#include "app/adapter_references.h"

#include "base/error.h"
#include "hub/adapter_tools.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace {

std::string reference_rule(const std::filesystem::path& adapter) {
  try {
    const auto source = open_weights(adapter);
    const auto found = source->metadata().find("ss_flux2_references");
    return found == source->metadata().end() ? "" : found->second;
  } catch (const Error&) {
    return "";  // whoever loads the adapter says what is wrong with it
  }
}

}  // namespace

void follow_adapters(ResolvedRequest& resolved, const ModelFiles& model, const Log& log) {
  for (const AdapterChoice& adapter : resolved.adapters) {
    const std::string rule = reference_rule(adapter.path);
    if (rule == "zero_cond_t" && !resolved.request.references.empty()) resolved.request.references_at_zero = true;
    if (rule == "kv" && !model.kv && !resolved.request.reuse_reference_keys)
      log.warn(
          "{} was trained for reference images that see only each other, as in klein-9b-kv; {} treats them differently, so "
          "edits may not work (ref_kv on uses the rule of the adapter)",
          adapter.path.filename().string(), model.id);
  }
}

}  // namespace flux2
