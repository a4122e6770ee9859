// POST /api/v1/prompt/rewrite and /describe: a language model rewrites a prompt or describes an image, as the server's
// configuration says.
#include "app/prompt_rewriting.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>

#include "app/input_images.h"
#include "base/text.h"
#include "server/api/body_members.h"
#include "server/api/native.h"
#include "server/http/errors.h"
#include "server/jobs/job_request.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr int kAtATime = 4;  // each holds a thread that answers requests
constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();

constexpr const char* kBodySchema = R"({"type":"object","required":["prompt"],"additionalProperties":false,"properties":{
  "prompt":{"type":"string","pattern":"[^ \\t\\r\\n]"},
  "references":{"type":["array","null"],"items":{"type":"string"},"description":"images that the prompt is about: asset:ID, data URL or base64"},
  "kind":{"type":["string","null"],"enum":["t2i","edit",null],"description":"default: edit if there are references"},
  "provider":{"type":["string","null"],"description":"http, openrouter or ollama; default: what the server is configured for"},
  "seed":{"type":["integer","null"],"minimum":0},
  "max_tokens":{"type":["integer","null"],"minimum":1,"maximum":4096}}})";

constexpr const char* kDescribeSchema = R"({"type":"object","required":["image"],"additionalProperties":false,"properties":{
  "image":{"type":"string","description":"asset:ID, data URL or base64"},
  "about":{"type":["string","null"],"description":"what the model should know about the image"},
  "provider":{"type":["string","null"],"description":"http, openrouter or ollama; default: what the server is configured for"},
  "seed":{"type":["integer","null"],"minimum":0},
  "max_tokens":{"type":["integer","null"],"minimum":1,"maximum":4096}}})";

// `list` is the name of the list in messages; empty: there is one image, called "image".
std::vector<Image> images_of(const std::vector<std::string>& references, ApiContext& api,
                             const std::string& list = "references") {
  const size_t most = static_cast<size_t>(api.app.limits.request.references);
  if (references.size() > most)
    throw HttpError(400, "invalid_request", fmt::format("references: at most {} images are accepted", most), "references");
  std::vector<Image> images;
  InputImages files(api.app.log, {}, api.app.limits);
  for (size_t i = 0; i < references.size(); ++i) {
    const std::string param = list.empty() ? "image" : fmt::format("{}[{}]", list, i);
    const std::string stored = stored_image(references[i], "reference", api.queue.assets(), api.app, param);
    const auto asset = api.queue.assets().get(stored.substr(std::string_view("asset:").size()));
    if (!asset) throw HttpError(400, "invalid_image_file", param + ": the image was deleted", param);
    images.push_back(to_rgb(*files.picture(api.queue.assets().path_of(*asset).string()).image));
  }
  return images;
}

// The one that is asked for, else the configured one, else the first that works.
std::string chosen_provider(const std::optional<std::string>& asked, const RequestSpec& spec, const AppContext& app,
                            bool offline) {
  const std::vector<std::string> works = available_rewriters(spec, app, offline);
  const std::string wanted = asked.value_or(spec.upsample.value_or("none"));
  if (std::find(works.begin(), works.end(), wanted) != works.end()) return wanted;
  if (!asked && wanted == "none" && !works.empty()) return works.front();
  throw HttpError(424, "upsampler_unavailable",
                  asked ? fmt::format("this server is not configured to rewrite prompts with \"{}\"", printable(wanted))
                        : "this server is not configured to rewrite prompts");
}

// Asks, and answers with what came of it under the name `result`.
HttpResponse answered(const Rewriter& rewriter, const char* result, uint64_t seed, const char* failure,
                      const std::function<RewrittenPrompt(const Log&)>& ask) {
  Json warnings = Json::array();
  const Log log([&](LogLevel level, const std::string& text) {
    if (level == LogLevel::Warning) warnings.push_back(text);
  });
  try {
    const RewrittenPrompt made = ask(log);
    return HttpResponse::json({{result, made.prompt},
                               {"provider", rewriter.way()},
                               {"model", rewriter.model()},
                               {"seed", seed},
                               {"tokens", made.tokens ? Json(*made.tokens) : Json(nullptr)},
                               {"warnings", warnings}});
  } catch (const Error& e) {
    throw HttpError(502, "upsampler_failed", fmt::format("{}: {}", failure, e.what()));
  }
}

HttpResponse rewrite(const ServerRequest& request, ApiContext& api, const Settings& defaults) {
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"prompt", "references", "kind", "provider", "seed", "max_tokens"});
  const auto prompt = members.text("prompt", static_cast<size_t>(api.app.limits.request.prompt_bytes));
  const auto references = members.texts("references", 1000, kImageBody);
  const auto kind = members.text("kind", 100);
  const auto provider = members.text("provider", 100);
  const auto seed = members.integer("seed", 0, kMaxSeed);
  const auto max_tokens = members.integer("max_tokens", 1, 4096);
  if (!prompt || trimmed(*prompt).empty()) members.wrong("prompt", "is missing");
  if (kind && *kind != "t2i" && *kind != "edit") members.wrong("kind", "must be t2i or edit");
  members.check_all();

  RequestSpec spec = spec_of(defaults);
  const bool offline = defaults.flag("offline");
  spec.upsample = chosen_provider(provider, spec, api.app, offline);
  if (max_tokens) spec.upsample_max_tokens = *max_tokens;
  RewriteQuestion question{.prompt = *prompt, .seed = static_cast<uint64_t>(seed.value_or(0))};
  question.images = images_of(references.value_or(std::vector<std::string>{}), api);
  question.is_edit = kind ? *kind == "edit" : !question.images.empty();
  const auto rewriter = open_rewriter(spec, api.app, offline, {});
  return answered(*rewriter, "prompt", question.seed, "the prompt was not rewritten", [&](const Log& log) {
    return rewrite_prompt(*rewriter, question, static_cast<size_t>(api.app.limits.request.prompt_bytes), {}, log);
  });
}

HttpResponse describe(const ServerRequest& request, ApiContext& api, const Settings& defaults) {
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"image", "about", "provider", "seed", "max_tokens"});
  const auto image = members.text("image", kImageBody);
  const auto about = members.text("about", static_cast<size_t>(api.app.limits.request.prompt_bytes));
  const auto provider = members.text("provider", 100);
  const auto seed = members.integer("seed", 0, kMaxSeed);
  const auto max_tokens = members.integer("max_tokens", 1, 4096);
  if (!image || image->empty()) members.wrong("image", "is missing");
  members.check_all();

  RequestSpec spec = spec_of(defaults);
  const bool offline = defaults.flag("offline");
  spec.upsample = chosen_provider(provider, spec, api.app, offline);
  spec.upsample_no_images.reset();
  if (max_tokens) spec.upsample_max_tokens = *max_tokens;
  const std::vector<Image> images = images_of({*image}, api, "");
  const auto describer = open_rewriter(spec, api.app, offline, {});
  const DescribeOptions how{.about = about.value_or(""), .seed = static_cast<uint64_t>(seed.value_or(0))};
  return answered(*describer, "description", how.seed, "the image was not described",
                  [&](const Log& log) { return describe_image(*describer, images.front(), how, {}, log); });
}

}  // namespace

void add_prompt_routes(Router& router, ApiContext& api, const Settings& defaults) {
  const auto running = std::make_shared<std::atomic<int>>(0);
  const auto few_at_a_time = [&api, &defaults, running](auto ask) {
    return answering([&api, &defaults, running, ask](const ServerRequest& request) {
      const std::shared_ptr<void> leave(nullptr, [&](void*) { --*running; });
      if (++*running > kAtATime)
        throw HttpError(429, "too_many_requests", "the language model is being asked too often; try again in a moment");
      return ask(request, api, defaults);
    });
  };
  router.add({.method = "POST",
              .pattern = "/api/v1/prompt/describe",
              .handler = few_at_a_time(describe),
              .scope = Scope::Generate,
              .body_limit = kImageBody,
              .summary = "let a language model describe an image; 424 if this server is not configured for it",
              .body = kDescribeSchema});
  router.add({.method = "POST",
              .pattern = "/api/v1/prompt/rewrite",
              .handler = few_at_a_time(rewrite),
              .scope = Scope::Generate,
              .body_limit = kImageBody,
              .summary = "let a language model rewrite a prompt; 424 if this server is not configured for it",
              .body = kBodySchema});
}

}  // namespace flux2
