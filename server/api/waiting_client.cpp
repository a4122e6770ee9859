#include "server/api/waiting_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/base64.h"
#include "base/text.h"
#include "server/api/service_mask.h"
#include "server/jobs/job_request.h"
#include "server/jobs/job_settings.h"

namespace flux2 {

Job submit_translated(ApiContext& api, const NativeRequest& request) {
  std::vector<std::string> warnings;
  Json checked = check_job_request(request.members, request.kind, api.queue.assets(), api.app, warnings);
  add_service_mask(checked, api);
  settings_of_job(checked, api.queue.assets(), api.app);  // an adapter that does not exist is refused now, not in its turn
  JobQueue::Submission submission;
  submission.warnings = warnings;
  const std::string model = checked.value("model", std::string());
  submission.model_key = api.models.find(model.empty() ? api.default_model : model).id;
  submission.request = std::move(checked);
  submission.kind = request.kind;
  submission.client_ref = request.client_ref;
  submission.caller = request.caller;
  return api.queue.submit(submission).job;
}

void answer_when_finished(ApiContext& api, const Exchange& exchange, Family family, const Job& job,
                          std::function<HttpResponse(const Job&)> answer) {
  JobQueue& queue = api.queue;
  if (api.cancel_on_disconnect) exchange.on_disconnect([&queue, id = job.id] { queue.cancel_soon(id); });
  queue.when_finished(job.id, [exchange, family, answer = std::move(answer)](const Job& final) {
    try {
      exchange.respond(answer(final));
    } catch (...) {
      exchange.respond(error_response(family, http_error_of(std::current_exception()), exchange.request().id));
    }
  });
}

HttpError error_of_job(const Job& job) {
  if (job.state == "cancelled") return HttpError(503, "cancelled", "The job was cancelled.");
  const auto text = [&](const char* member) {
    return job.error.is_object() && job.error.contains(member) && job.error[member].is_string()
               ? job.error[member].get<std::string>()
               : std::string();
  };
  const std::string code = text("code"), message = text("message");
  const auto with_hint = [&](HttpError error) {
    error.hint = text("hint");
    return error;
  };
  if (code == "invalid_request" || code == "incompatible") return with_hint(HttpError(400, "invalid_value", message));
  if (code == "model_not_found") return with_hint(HttpError(404, code, message, "model"));
  if (code == "invalid_image_file") return with_hint(HttpError(400, code, message, "image"));
  if (code == "content_policy_violation") return with_hint(HttpError(400, code, message));
  if (code == "out_of_memory") return with_hint(HttpError(503, code, message));
  if (code == "damaged_file") return with_hint(HttpError(503, "model_load_failed", message));
  if (code == "interrupted") return with_hint(HttpError(503, "shutting_down", message));
  if (code == "deadline") return with_hint(HttpError(503, code, message));
  return with_hint(HttpError(500, code.empty() ? "internal" : code, message.empty() ? "The job failed." : message));
}

Json object_in_body(const ServerRequest& request, const AppContext& app) {
  JsonLimits limits = app.limits.json;
  limits.bytes = std::max(limits.bytes, request.body.size());  // the route has a limit of its own
  Json body;
  try {
    body = parse_json(request.body, limits);
  } catch (const Error& e) {
    throw HttpError(400, "invalid_json", std::string("The body cannot be read: ") + e.what());
  }
  if (!body.is_object()) throw HttpError(400, "invalid_json", "The body must be a JSON object.");
  return body;
}

std::string bytes_of_asset(AssetStore& assets, const std::string& id) {
  const auto asset = assets.get(id);
  if (!asset) throw HttpError(404, "not_found", "The image was deleted.");
  return read_text_file(assets.path_of(*asset), {.bytes = size_t{1} << 30});
}

std::string base64_of(const std::string& bytes) { return base64_encode(std::as_bytes(std::span(bytes))); }

std::vector<std::byte> decoded_image(const std::string& text, const AppContext& app, const std::string& param) {
  std::string_view encoded = text;
  if (encoded.starts_with("data:")) encoded.remove_prefix(std::min(encoded.size(), encoded.find(',') + 1));
  if (encoded.size() / 4 * 3 > app.limits.image.file_bytes)
    throw HttpError(400, "invalid_image_file", param + ": the image is too large", param);
  try {
    return base64_decode(encoded);
  } catch (const Error& e) {
    throw HttpError(400, "invalid_image_file", fmt::format("{}: {}", param, e.what()), param);
  }
}

std::string stored_part(const FormPart& part, const std::string& kind, AssetStore& assets, const std::string& param,
                        const std::string& project) {
  try {
    const Asset fields{.project = project, .kind = kind};
    const Asset asset =
        part.file.empty() ? assets.put(std::as_bytes(std::span(part.data)), fields) : assets.put_file(part.file, fields);
    return "asset:" + asset.id;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::InvalidArgument && e.code() != ErrorCode::BadFile) throw;
    throw HttpError(400, "invalid_image_file", fmt::format("{}: the image cannot be read: {}", param, e.what()), param);
  }
}

Asset asset_of(const std::string& reference, AssetStore& assets) {
  const auto asset = assets.get(reference.substr(std::string_view("asset:").size()));
  if (!asset) throw HttpError(400, "invalid_image_file", "image not found: " + printable(reference));
  return *asset;
}

}  // namespace flux2
