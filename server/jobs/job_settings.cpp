#include "server/jobs/job_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "app/adapters.h"
#include "app/image_prompt_files.h"
#include "base/error.h"
#include "base/text.h"
#include "server/jobs/job_members.h"
#include "server/jobs/request_images.h"
#include "server/jobs/request_lists.h"
#include "server/jobs/studio_request.h"
#include "server/jobs/tried_adapters.h"

namespace flux2 {

namespace {

// The error of the command line names folders of this machine, and files that a request may not name.
std::string named_adapter(const std::string& text, const AppContext& context) {
  try {
    return text_of(adapter_by_name(text, "loras", context));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::NotFound) throw;
    throw Error(ErrorCode::NotFound, fmt::format("loras: no LoRA is called {}", printable(text.substr(0, text.find(':')))),
                "GET /api/v1/loras lists the names");
  }
}

// A checkpoint of a training run, or an adapter that is registered or in the model folders.
std::string adapter_setting(const std::string& text, const AssetStore& assets, const AppContext& context) {
  if (!is_tried_name(text)) return named_adapter(text, context);
  const TriedAdapter tried = tried_adapter(text, assets.folder());
  return tried.file.string() + (tried.rest.empty() ? ":1" : tried.rest);
}

// The file of an image-prompt adapter: a checkpoint of a training run or a registered one.
std::string image_prompt_adapter_setting(const std::string& name, const AssetStore& assets, const AppContext& context) {
  const char* member = "image_prompt_adapter";
  if (!is_tried_name(name)) return registered_image_prompt_part(ImagePromptPart::Adapter, name, member, context).string();
  const TriedAdapter tried = tried_adapter(name, assets.folder());
  check(tried.rest.empty(), "{}: \"{}\" has a strength; give it with the image prompts", member, printable(name));
  return tried.file.string();
}

}  // namespace

SettingLayer settings_of_job(const Json& request, const AssetStore& assets, const AppContext& context) {
  SettingLayer layer;
  const auto path_of = [&](const Json& image) { return file_of_image(image.get<std::string>(), assets).string(); };
  for (const auto& [key, value] : request.items())
    if (key == kResolution) continue;
    else if (auto texts = field_texts(key, value)) {
      std::string name = texts->field;
      std::replace(name.begin(), name.end(), '_', '-');
      layer[name] = {std::move(texts->texts), key};
      if (name == "model") layer[name].names_only = true;
    }
  std::vector<std::string> input, adapters;
  if (request.contains("canvas")) input.push_back(path_of(request["canvas"]));
  if (request.contains("references"))
    for (const Json& image : request["references"]) input.push_back(path_of(image));
  if (!input.empty()) layer["input"] = {input, "references"};
  if (request.contains("regions")) {
    const Json& regions = request["regions"];
    layer["region"] = {region_texts(regions), "regions"};
    std::vector<std::string> masks, references;
    for (size_t r = 0; r < regions.size(); ++r) {
      const Json& region = regions[r];
      if (region.contains("mask") && region["mask"].is_string()) masks.push_back(path_of(region["mask"]));
      if (region.contains("references") && region["references"].is_array())
        for (const Json& image : region["references"]) references.push_back(fmt::format("{}:{}", r + 1, path_of(image)));
    }
    if (!masks.empty()) layer["region-mask"] = {masks, "regions"};
    if (!references.empty()) layer["region-reference"] = {references, "regions"};
  }
  if (request.contains("image_prompts")) {
    std::vector<std::string> prompts;
    for (const Json& one : request["image_prompts"]) prompts.push_back(image_prompt_of(one, path_of(one["image"])).text());
    layer["image-prompt"] = {prompts, "image_prompts"};
  }
  if (const char* member = "image_prompt_adapter"; request.contains(member))
    layer["image-prompt-adapter"] = {{image_prompt_adapter_setting(request[member].get<std::string>(), assets, context)}, member};
  if (const char* member = "image_prompt_encoder"; request.contains(member))
    layer["image-prompt-encoder"] = {
        {registered_image_prompt_part(ImagePromptPart::Encoder, request[member].get<std::string>(), member, context).string()},
        member};
  if (request.contains("mask")) layer["mask"] = {{path_of(request["mask"])}, "mask"};
  if (request.contains("mask_from_diff")) layer["mask-from-diff"] = {{path_of(request["mask_from_diff"])}, "mask_from_diff"};
  if (request.contains("detail_mask")) layer["detail-mask"] = {{path_of(request["detail_mask"])}, "detail_mask"};
  if (request.contains("loras"))
    for (const Json& one : request["loras"]) adapters.push_back(adapter_setting(adapter_text(one), assets, context));
  if (!adapters.empty()) layer["lora"] = {adapters, "loras"};
  return layer;
}

}  // namespace flux2
