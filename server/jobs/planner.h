#pragma once

#include <map>
#include <mutex>
#include <string>

#include "app/context.h"
#include "app/picture_maker.h"
#include "app/settings.h"
#include "server/store/asset_store.h"

namespace flux2 {

// The engine that a server forecasts with. On a GPU without a configured limit, nearly all of its memory counts, also what loaded
// models hold now: they leave when a job needs their memory.
EngineOptions forecast_options(const RequestSpec& spec, const std::vector<AdapterChoice>& adapters, const AppContext& context);

// Refuses requests that no placement of the weights makes fit into the memory of the device, or into the limit of the server.
// Verdicts are remembered by the shape of a request, so a repeated one costs nothing. Thread-safe.
class Planner {
 public:
  Planner(const AppContext& context, const Settings& defaults, const AssetStore& assets)
      : context_(context), defaults_(defaults), assets_(assets) {}

  // A checked request (job_request.h). Throws HttpError 400 `does_not_fit` with settings that would fit. Returns its work, in
  // megapixels times steps: at least 1, or 0 for a request that makes neither images nor a text.
  int64_t check(const Json& request);

 private:
  struct Verdict {
    std::string problem = {}, hint = {};  // empty: it fits
    int64_t work = 0;
  };
  Verdict text_verdict(const Json& request) const;  // of one that makes a text
  Verdict verdict_of(const Json& request) const;

  const AppContext& context_;
  const Settings& defaults_;
  const AssetStore& assets_;
  std::mutex mutex_;
  std::map<std::string, Verdict> known_;
};

}  // namespace flux2
