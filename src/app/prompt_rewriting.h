#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/context.h"
#include "app/resolve.h"
#include "base/error.h"
#include "rewrite/rewriter.h"

namespace flux2 {

// Whether the prompt of a request is to be rewritten: it asks for it, has a prompt, and the prompt was not rewritten before.
bool wants_rewriting(const ResolvedRequest& resolved);

// The rewriter that the fields upsample… of a request choose. Throws InvalidArgument if a setting is missing, or if it needs the
// network and `offline` forbids it. Keys come from the environment. `model` is the one whose text encoder is used for `local`.
// `caption_file` holds instructions for describing images; empty: the built-in ones. `make_room` is for `local`: see
// LocalRewriterOptions.
std::unique_ptr<Rewriter> open_rewriter(const RequestSpec& spec, const AppContext& context, bool offline, const ModelFiles& model,
                                        const std::string& caption_file = {}, std::function<bool(int64_t bytes)> make_room = {});

// Equal for requests that the same rewriter can serve.
std::string rewriter_key(const RequestSpec& spec, const ModelFiles& model);

// The services among the values of `upsample` that work with these settings.
struct RewriterOffer {
  std::string way, model;
  std::string place;  // where prompts are sent to, for people
};
std::vector<RewriterOffer> offered_rewriters(const RequestSpec& spec, const AppContext& context, bool offline);
std::vector<std::string> available_rewriters(const RequestSpec& spec, const AppContext& context, bool offline);

// What to ask for a request. Its references become images.
RewriteQuestion question_for(const ResolvedRequest& resolved);

// Rewrites the prompts of the requests that want it; equal prompts are rewritten once, unless `upsample_each` is set, which also
// makes each image of a batch a request of its own. The records keep both prompts. If that fails, a request keeps its prompt,
// with a warning and a note in its record, and after a failure of the service later requests are not tried; with `strict` a
// failure is an error.
void rewrite_prompts(std::vector<ResolvedRequest>& requests, Rewriter& rewriter, const AppContext& context,
                     const Rewriter::Cancelled& cancelled = {}, const OnText& on_text = {});

// What becomes of the requests if open_rewriter() has thrown: those that want it keep their prompt, with a warning and a note in
// their record. A mistake in the settings is thrown again, and with `strict` every failure.
void keep_prompts(std::vector<ResolvedRequest>& requests, const Error& why, const AppContext& context);

}  // namespace flux2
