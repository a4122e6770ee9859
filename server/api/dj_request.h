#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "hub/model_files.h"
#include "server/jobs/job_queue.h"

namespace flux2 {

// A request of dj-flux2's API, translated. Its errors are HttpError 400 or 422.
struct DjRequest {
  Json native = Json::object();  // without images
  std::string model;
  std::vector<std::string> images;  // base64
  int upscale = 1;                  // 2 or 4: when the result is fetched
  bool upscale_network = false;     // by an installed upscaler; else with Lanczos
};
DjRequest parse_dj_request(const Json& body);

// A distilled model has its own guidance.
void apply_dj_model_rules(DjRequest& request, const ModelFiles& model);

// 32 hex digits: the 128 bits of the job's id. So a token needs no table and survives a restart.
std::string dj_token(const std::string& job);
std::optional<std::string> job_of_dj_token(std::string_view token);  // empty if the text is not a token

// What the job keeps for this family: how far the result is enlarged, and by what.
std::string dj_client_ref(const DjRequest& request);
int dj_upscale_of(const Job& job);
bool dj_upscales_by_network(const Job& job);

// `queue_position` is 1 for the next job; 0: it does not wait.
Json dj_status(const Job& job, int64_t queue_position);

}  // namespace flux2
