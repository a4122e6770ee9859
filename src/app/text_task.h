#pragma once

#include <string>
#include <vector>

#include "app/context.h"
#include "hub/model_files.h"
#include "record/request_spec.h"
#include "rewrite/rewriter.h"

namespace flux2 {

// A prompt to rewrite or an image to describe, and nothing else: no image is generated.
struct TextTask {
  bool describes = false;
  std::string prompt;         // or what the user says about the image to describe; that may be empty
  std::vector<Image> images;  // RGB: what the prompt is about, or the one image to describe
  bool is_edit = false;       // the prompt says how to change images
  uint64_t seed = 0;
  OnText on_text = {};
};

// Runs it. With the safety checks of the context, the prompt and the images are checked before, and the text after; Refused if
// one is flagged. `spec` and `model` say where these checks run. Throws the errors of rewrite_prompt() and describe_image().
RewrittenPrompt run_text_task(Rewriter& rewriter, const TextTask& task, const RequestSpec& spec, const ModelFiles& model,
                              const AppContext& context, const Rewriter::Cancelled& cancelled);

}  // namespace flux2
