#include "server/jobs/text_request.h"

#include "app/input_images.h"
#include "app/local_rewriter.h"
#include "base/error.h"
#include "server/jobs/job_settings.h"
#include "server/jobs/request_images.h"

namespace flux2 {

namespace {

bool is_description(const Json& request) { return request.value("kind", std::string()) == "describe"; }

}  // namespace

TextRequest text_request(const Json& request, const Settings& defaults, const AssetStore& assets, const AppContext& context,
                         FoundModels* found) {
  Json chosen = Json::object();
  if (request.contains("model")) chosen["model"] = request["model"];
  const Settings settings = defaults.with(settings_of_job(chosen, assets, context));
  TextRequest text;
  text.spec = spec_of(settings);
  text.offline = settings.flag("offline");
  text.spec.upsample = request.value("provider", std::string("local"));
  if (request.contains("max_tokens")) text.spec.upsample_max_tokens = request["max_tokens"].get<int64_t>();
  if (is_description(request)) text.spec.upsample_no_images.reset();
  if (text.is_local()) {
    text.spec.upsample_model.reset();  // it names the model of a service
    text.model = choose_model(text.spec, context, found);
    const bool shows = request.contains("references") && !text.spec.upsample_no_images.value_or(false);
    text.sees = shows && language_abilities(text.model).sees;
  } else if (context.safety) {  // whose checks may use its text encoder
    try {
      text.model = choose_model(text.spec, context, found);
    } catch (const Error&) {  // they look for another one
    }
  }
  return text;
}

TextTask text_task_of(const Json& request, const AssetStore& assets, const AppContext& context) {
  TextTask task;
  task.describes = is_description(request);
  task.prompt = request.value("prompt", std::string());
  task.is_edit = request.value("edit", false);
  task.seed = request.value("seed", uint64_t{0});
  InputImages files(context.log, {}, context.limits);
  if (request.contains("references"))
    for (const Json& image : request["references"])
      task.images.push_back(to_rgb(*files.picture(file_of_image(image.get<std::string>(), assets).string()).image));
  return task;
}

Json text_result(const Json& request, const RewrittenPrompt& made, const Rewriter& rewriter) {
  return {{is_description(request) ? "description" : "prompt", made.prompt},
          {"provider", rewriter.way()},
          {"model", rewriter.model()},
          {"seed", request.value("seed", uint64_t{0})},
          {"tokens", made.tokens ? Json(*made.tokens) : Json(nullptr)}};
}

}  // namespace flux2
