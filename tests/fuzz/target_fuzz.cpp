#include <string>

#include "base/error.h"
#include "base/text.h"
#include "server/http/router.h"
#include "server/http/url_target.h"
#include "tests/fuzz/target.h"

// Targets of requests: a path that is accepted begins with a slash, climbs nowhere and is UTF-8, and every router can look it up.
FUZZ_TARGET(target) {
  using namespace flux2;
  static const Router* router = [] {
    auto* made = new Router;
    for (const char* pattern : {"/", "/{path...}", "/api/v1/jobs/{id}", "/api/v1/jobs/cancel", "/api/{a}/{b}/{c...}"})
      made->add({.method = "GET", .pattern = pattern, .handler = {}});
    return made;
  }();
  const UrlTarget target = parse_target(flux2_fuzz::text_of(data, size));
  const std::string& path = target.path;
  if (!path.starts_with('/') || !is_utf8(path) || path.find('\0') != path.npos || path.find('\\') != path.npos)
    flux2_fuzz::broken();
  if ((path + "/").find("/../") != path.npos || (path + "/").find("/./") != path.npos) flux2_fuzz::broken();
  for (const auto& [name, value] : target.query)
    if (!is_utf8(name) || !is_utf8(value)) flux2_fuzz::broken();
  const Router::Match match = router->find("GET", path);
  if (match.route == nullptr) flux2_fuzz::broken();  // /{path...} takes what no other route wants
  for (const auto& [name, value] : match.captured)
    if (path.find(value) == path.npos) flux2_fuzz::broken();
  family_of(path);
}
