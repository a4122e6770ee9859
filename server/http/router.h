#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"

namespace flux2 {

// The interfaces on one port. Each has its own shape of errors.
enum class Family { Native, OpenAi, A1111, Dj, Page };

// Answers now, or keeps the exchange and answers later. Runs on a pool thread, so it may read files but must not wait for a job.
// What it throws is turned into the family's error answer.
using Handler = std::function<void(const Exchange&)>;

struct Route {
  std::string method, pattern;  // "/api/v1/jobs/{id}": a name in braces captures one segment, a final {name...} the rest
  Handler handler;
  Scope scope = Scope::Generate;
  uint64_t body_limit = 1 << 20;            // of a body in memory
  uint64_t form_limit = 0;                  // of a multipart form, whose large parts go to files; 0: body_limit
  std::string summary = {};                 // for the OpenAPI document
  std::vector<std::string> arguments = {};  // of the query, for the same document
  std::string body = {};                    // a JSON schema of the body, for the same document
  std::string form = {};                    // a JSON schema of the body as a multipart form, for the same document
};

// One table of routes for all families.
class Router {
 public:
  void add(Route route);

  struct Match {
    const Route* route = nullptr;  // null: no such path or method
    std::vector<std::pair<std::string, std::string>> captured;
    std::vector<std::string> allowed;  // methods of the path, when only the method is wrong
  };
  Match find(std::string_view method, std::string_view path) const;  // HEAD finds GET
  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
  std::vector<std::vector<std::string>> segments_;  // of each pattern
};

// By the first segment: v1, sdapi, api, and those of dj-flux2 (generate, status, result, queue, cancel, models, ws). The rest
// belongs to the page.
Family family_of(std::string_view path);

// A handler that answers at once.
Handler answering(std::function<HttpResponse(const ServerRequest&)> answer);

}  // namespace flux2
