#pragma once

#include "base/json.h"
#include "record/generation_record.h"

namespace flux2 {

// A minimal ComfyUI graph that generates the image of a record, in the format of its API and in the format of its web page.
struct ComfyGraphs {
  Json api, ui;
};
ComfyGraphs comfy_graphs(const GenerationRecord& record);

// The settings of a graph in API form, as far as they can be followed upwards from its sampler: prompts, seed, steps,
// size, guidance and model. Throws BadFile when no sampler is in it.
GenerationRecord record_from_comfy(const Json& api);

}  // namespace flux2
