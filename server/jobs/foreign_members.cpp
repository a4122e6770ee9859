#include "server/jobs/foreign_members.h"

#include <map>
#include <utility>

namespace flux2 {

namespace {

// Names that Milimo and other studios use for members of ours.
const std::map<std::string, std::string>& foreign_members() {
  static const std::map<std::string, std::string> names = {{"num_inference_steps", "steps"},
                                                           {"guidance_scale", "guidance"},
                                                           {"negative_prompt", "negative"},
                                                           {"reference_images", "references"},
                                                           {"image_path", "canvas"},
                                                           {"mask_path", "mask"},
                                                           {"text_mask", "mask_text"},
                                                           {"points", "mask_points"},
                                                           {"num_images", "count"},
                                                           {"batch", "count"},
                                                           {"lora", "loras"},
                                                           {"input", "references"},
                                                           {"format", "output_format"},
                                                           {"quality", "output_quality"}};
  return names;
}

}  // namespace

Json in_our_words(const Json& request, std::vector<std::string>& warnings) {
  Json ours = Json::object();
  Json references = Json::array();
  const auto add = [&](const Json& images) {
    for (const Json& image : images.is_array() ? images : Json::array({images})) references.push_back(image);
  };
  for (const auto& [key, value] : request.items()) {
    if (value.is_null()) continue;
    if (key == "element_images" || key == "ip_adapter_images" || key == "reference_images" || key == "references" ||
        key == "input") {
      if (key != "references") warnings.push_back(key + " is used as references");
      add(value);
    } else if (key == "enable_ae") {
      warnings.push_back("enable_ae has no effect");
    } else if (key == "enable_true_cfg") {
      if (value == true) {
        ours["cfg"] = 2.0;
        ours["no_negative_refs"] = true;
        warnings.push_back("enable_true_cfg is used as cfg 2.0");
      }
    } else if (const auto found = foreign_members().find(key); found != foreign_members().end()) {
      warnings.push_back(key + " is used as " + found->second);
      if (!ours.contains(found->second)) ours[found->second] = value;
    } else {
      ours[key] = value;
    }
  }
  if (!references.empty()) ours["references"] = std::move(references);
  return ours;
}

}  // namespace flux2
