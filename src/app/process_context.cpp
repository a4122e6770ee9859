// The context of the program itself: what the environment, the configuration files and the safety settings say.
#include <cstdlib>

#include "app/context.h"
#include "app/request_limits.h"
#include "app/safety.h"
#include "base/text.h"

namespace flux2 {

AppContext process_context(Log log) {
  AppContext context;
  context.environment = [](const char* name) -> const char* { return std::getenv(name); };
  context.project = read_project_config("flux2.toml", log);
  context.user = read_config(data_path(context.environment, "config.toml"), log);
  context.limits = limits_of(context.environment, context.user);
  context.log = std::move(log);
  context.safety = Safety::open(context);
  return context;
}

void warn_of_refused_keys(const AppContext& context) {
  const std::string user = context.user.path.empty() ? "the user's configuration" : context.user.path.string();
  for (const std::string& key : context.project.refused)
    context.log.warn("{}: {} is not used. A file in the current folder may set defaults of images only. Set this key in {}",
                     context.project.path.string(), printable(key), user);
}

}  // namespace flux2
