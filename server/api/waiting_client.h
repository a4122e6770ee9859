#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/api/api_context.h"
#include "server/http/errors.h"
#include "server/http/exchange.h"
#include "server/http/router.h"

namespace flux2 {

// A request of a compatible interface, translated into a native one.
struct NativeRequest {
  Json members = Json::object();
  std::string kind = "generate";
  std::string client_ref = {};
  Caller caller = {};
};

// Checks and submits it. Warnings go into the job.
Job submit_translated(ApiContext& api, const NativeRequest& request);

// Answers the exchange when the job is final; no thread waits. A client that leaves cancels the job.
void answer_when_finished(ApiContext& api, const Exchange& exchange, Family family, const Job& job,
                          std::function<HttpResponse(const Job&)> answer);

// Why a job gave no image: failed or cancelled.
HttpError error_of_job(const Job& job);

// The JSON object in a request's body. Throws HttpError 400 `invalid_json`.
Json object_in_body(const ServerRequest& request, const AppContext& app);

std::string bytes_of_asset(AssetStore& assets, const std::string& id);
std::string base64_of(const std::string& bytes);
// The bytes of a base64 text or data URL that a field contains. Throws HttpError 400 `invalid_image_file`.
std::vector<std::byte> decoded_image(const std::string& text, const AppContext& app, const std::string& param);

// "asset:ID" of a part of a form. Throws HttpError 400 `invalid_image_file`.
std::string stored_part(const FormPart& part, const std::string& kind, AssetStore& assets, const std::string& param,
                        const std::string& project = {});
Asset asset_of(const std::string& reference, AssetStore& assets);  // of "asset:ID"

}  // namespace flux2
