#pragma once

#include "app/model_choice.h"
#include "app/settings.h"
#include "app/text_task.h"
#include "server/store/asset_store.h"

namespace flux2 {

// Jobs of kind rewrite and describe make a text instead of images. Members of their request, as it is stored:
//   prompt         to be rewritten, or what the user says about the image to describe
//   references     ["asset:ID"]: what the prompt is about, or the image to describe
//   edit           whether the prompt says how to change images
//   provider       who writes: a value of the field upsample
//   model          whose text encoder writes; absent: the server's own choice
//   seed, max_tokens, preempt
struct TextRequest {
  RequestSpec spec;  // of the server's settings and the job: who writes, and where it runs
  ModelFiles model;  // empty if nothing needs it
  bool offline = false;
  bool sees = false;  // the model's own language model looks at images

  bool is_local() const { return spec.upsample == "local"; }
};

// Throws NotFound if the model does not exist.
TextRequest text_request(const Json& request, const Settings& defaults, const AssetStore& assets, const AppContext& context,
                         FoundModels* found = nullptr);

// The task itself. Reads the images.
TextTask text_task_of(const Json& request, const AssetStore& assets, const AppContext& context);

// What clients get: the text as `prompt` or `description`, who wrote it, and how many tokens it has.
Json text_result(const Json& request, const RewrittenPrompt& made, const Rewriter& rewriter);

}  // namespace flux2
