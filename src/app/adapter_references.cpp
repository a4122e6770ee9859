#include "app/adapter_references.h"

#include <algorithm>

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

bool has_references(const Request& request) {
  return !request.references.empty() || std::any_of(request.regions.begin(), request.regions.end(),
                                                    [](const Region& region) { return !region.references.empty(); });
}

}  // namespace

void follow_adapters(ResolvedRequest& resolved, const ModelFiles& model, const Log& log) {
  for (const AdapterChoice& adapter : resolved.adapters) {
    const std::string rule = reference_rule(adapter.path);
    if (rule == "zero_cond_t" && has_references(resolved.request)) resolved.request.references_at_zero = true;
    if (rule == "kv" && !model.kv && !resolved.request.reuse_reference_keys)
      log.warn(
          "{} was trained for reference images that see only each other, as in klein-9b-kv; {} treats them differently, so "
          "edits may not work (ref_kv on uses the rule of the adapter)",
          adapter.path.filename().string(), model.id);
  }
}

}  // namespace flux2
