#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/limits.h"
#include "server/http/errors.h"
#include "server/jobs/prompt_elements.h"
#include "server/store/asset_store.h"

// What the studio adds to a job request: the defaults and the style of its project, and the elements that its prompt names. A
// stored request has the final prompt, the final references and the final adapters, which a worker uses; the member `resolution`
// keeps what was sent and how it was changed.
namespace flux2 {

constexpr const char* kResolution = "resolution";

// What is known before the images of a request are stored.
struct StudioResolution {
  std::string style;  // words of the project that follow the prompt
  ElementOptions options;
  ElementsInPrompt found;
};

// Fills a request in, before its members are checked. What is wrong is added to `problems`.
StudioResolution resolve_in_studio(Json& request, AssetStore& assets, std::vector<HttpError::FieldProblem>& problems);

// Writes the final prompt, references and adapters into a request whose own images are stored.
void finish_in_studio(Json& request, const StudioResolution& resolution, const AssetStore& assets, const RequestLimits& limits,
                      std::vector<std::string>& warnings);

std::string project_in_request(const Json& request);  // its id in the store; "" is the default project

// For clients: a stored request as it was sent, and the report about what was changed.
Json request_as_sent(const Json& request);
Json resolution_report(const Json& request);

}  // namespace flux2
