#pragma once

#include <functional>

#include "server/api/api_context.h"
#include "server/http/listener.h"
#include "server/http/router.h"
#include "server/jobs/worker.h"

namespace flux2 {

// /health, /healthz, /readyz and /metrics. `stopping` tells load balancers that this process is about to end.
struct HealthSources {
  std::function<bool()> stopping;
  std::function<HttpListener::Counts()> connections;
  const Worker* worker = nullptr;
  std::function<int64_t()> refused_by_rate = [] { return int64_t{0}; };  // requests
};
void add_health_routes(Router& router, ApiContext& api, const HealthSources& sources);

// Prometheus' text format.
std::string metrics_text(ApiContext& api, const HealthSources& sources);

}  // namespace flux2
