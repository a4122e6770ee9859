#include "server/jobs/merge_key.h"

#include <span>

#include "base/sha256.h"
#include "server/jobs/studio_request.h"

namespace flux2 {

std::string merge_key_of(const Json& request) {
  if (request.value("kind", std::string()) != "generate") return {};
  for (const char* alone :
       {"references", "regions", "image_prompts", "strict", "deadline", "rounds", "hires", "detail_box", "detail_mask"})
    if (request.contains(alone)) return {};
  nlohmann::json key = nlohmann::json::object();  // in the order of its keys
  for (const auto& [name, value] : request.items()) key[name] = value;
  for (const char* own :
       {"prompt",        "negative",      "seed",           "count",       "client_ref", "priority", "tags",
        "save",          "output_format", "output_quality", "metadata",    "preview",    "style",    "private",
        "scan_triggers", "scan_scope",    "element_text",   "number_refs", "project_id", "elements", kResolution})
    key.erase(own);
  const std::string text = key.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return sha256(std::as_bytes(std::span(text)));
}

}  // namespace flux2
