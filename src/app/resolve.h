#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/extra_passes.h"
#include "app/input_images.h"
#include "base/limits.h"
#include "hub/adapter_tools.h"
#include "hub/model_files.h"
#include "model/image_prompt.h"
#include "pipeline/request.h"
#include "record/generation_record.h"
#include "record/picture_metadata.h"

namespace flux2 {

enum class Task {
  Generate,  // from text, with or without references
  Edit,      // the same, but a reference is required
  Inpaint,   // regenerate part of the first image
};

// Turns a generated image into the image that is written; empty: no change.
using Finish = std::function<Image(const Image& made)>;

// What the image prompts of a request are made with.
struct ImagePromptUse {
  std::vector<GivenPicture> images;  // in the order of Request::image_prompts
  std::filesystem::path adapter, encoder;
  ImageFeature feature = ImageFeature::Pooled;

  bool empty() const { return images.empty(); }
};

// A request with every default filled in, and the record that its images will carry.
struct ResolvedRequest {
  Request request;
  GenerationRecord record;
  RequestSpec spec;  // what was asked for: how it runs and what is written
  Finish finish = {};
  ExtraPasses passes = {};
  std::vector<AdapterChoice> adapters = {};
  ImagePromptUse image_prompts = {};

  std::string output() const { return spec.output.value_or(""); }
};

// Applies the rules for sizes, seeds and guidance to a request, and reads the images it names, through `images` if requests share
// them. Adapters (app/adapters.h) and image prompts (app/resolve_image_prompts.h) are not looked up here. Throws InvalidArgument
// if the request cannot be fulfilled or asks for more than the limits allow.
ResolvedRequest resolve(const RequestSpec& spec, const ModelFiles& model, Task task = Task::Generate, const Log& log = {},
                        InputImages* images = nullptr, const Limits& limits = {});

// Whether keys and values of the references of a request, which has some, are computed once. Each model is trained for one of the
// two ways; warns of the other one.
bool reuses_reference_keys(const RequestSpec& spec, const ModelFiles& model, const Log& log);

// What the files of its images say about themselves. Throws InvalidArgument if the request asks to leave out the mark of
// generated images but not the other metadata, which would say the same.
MetadataChoice chosen_metadata(const RequestSpec& spec);

// A request that decodes saved latents.
ResolvedRequest resolve_latents(const RequestSpec& spec, const std::string& path, const Log& log = {});

// The settings of a record, for regenerating its image; without the seed if a new one is to be used. From other programs'
// records, only fields with the same meaning are used. The model is set if it is a published one, whether or
// not it is installed (app/recorded_model.h).
RequestSpec spec_of_record(const GenerationRecord& record, bool with_seed = true);

}  // namespace flux2
