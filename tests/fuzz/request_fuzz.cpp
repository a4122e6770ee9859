#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "server/http/errors.h"
#include "server/jobs/job_request.h"
#include "server/jobs/job_settings.h"
#include "server/jobs/merge_key.h"
#include "tests/fuzz/target.h"

namespace {

// Images that a request contains are stored; most inputs contain none.
flux2::AssetStore& assets() {
  static flux2::AssetStore store = [] {
    std::string pattern = (std::filesystem::temp_directory_path() / "flux2-request-XXXXXX").string();
    return flux2::AssetStore(::mkdtemp(pattern.data()));
  }();
  return store;
}

}  // namespace

// A request over HTTP is refused with status 400, or it becomes settings that name no file outside the data folder.
FUZZ_TARGET(request) {
  using namespace flux2;
  const auto json =
      try_parse_json(flux2_fuzz::text_of(data, size), {.bytes = 1 << 20, .keys = 1000, .values = 10'000, .depth = 20});
  if (!json) return;
  AppContext context;
  context.limits = Limits::for_server();
  for (const char* kind : {"generate", "edit", "inpaint"}) {
    std::vector<std::string> warnings;
    try {
      const Json checked = check_job_request(*json, kind, assets(), context, warnings);
      merge_key_of(checked);
      const std::string root = assets().folder().string();
      for (const auto& [name, setting] : settings_of_job(checked, assets(), context))
        for (const std::string& value : setting.values)
          if ((name == "input" || name == "mask") && !value.starts_with(root)) std::abort();
    } catch (const HttpError& e) {
      if (e.status != 400) std::abort();
    } catch (const Error&) {  // an adapter that does not exist
    }
  }
}
