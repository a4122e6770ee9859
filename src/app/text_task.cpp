#include "app/text_task.h"

#include <fmt/format.h>

#include "app/safety.h"
#include "base/error.h"

namespace flux2 {

RewrittenPrompt run_text_task(Rewriter& rewriter, const TextTask& task, const RequestSpec& spec, const ModelFiles& model,
                              const AppContext& context, const Rewriter::Cancelled& cancelled) {
  require(!task.describes || task.images.size() == 1, "{} images to describe", task.images.size());
  const auto& safety = context.safety;
  // The language model of the checks and the one that writes may not fit into memory together.
  const std::shared_ptr<void> release(nullptr, [&](void*) {
    if (safety) safety->release();
  });
  if (safety) {
    const SafetySettings& settings = safety->settings();
    if (settings.check.prompt) safety->check_text("the prompt", task.prompt, spec, model, cancelled);
    for (size_t i = 0; settings.check.references && i < task.images.size(); ++i)
      safety->check_image(task.describes ? "the image" : fmt::format("reference image {}", i + 1), task.images[i], spec, model,
                          cancelled);
    safety->release();
  }
  const auto longest = static_cast<size_t>(context.limits.request.prompt_bytes);
  const RewrittenPrompt made =
      task.describes ? describe_image(rewriter, task.images.front(),
                                      {.about = task.prompt, .seed = task.seed, .on_text = task.on_text}, cancelled, context.log)
                     : rewrite_prompt(rewriter,
                                      {.prompt = task.prompt,
                                       .is_edit = task.is_edit,
                                       .images = task.images,
                                       .seed = task.seed,
                                       .on_text = task.on_text},
                                      longest, cancelled, context.log);
  if (safety && safety->settings().check.rewritten) {
    rewriter.release();
    safety->check_text(task.describes ? "the description" : "the rewritten prompt", made.prompt, spec, model, cancelled);
  }
  return made;
}

}  // namespace flux2
