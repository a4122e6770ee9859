// fetch_tool SOURCE [--local-dir FOLDER] [--parts N]: downloads as the program does and prints what it did as JSON, for tests
// that end it in the middle, for the comparison with Python's hub library and for bench/download_rate.py.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "hub/remote/fetch.h"

int main(int argc, char** argv) {
  using namespace flux2;
  try {
    FetchOptions options{.hub = hub_settings([](const char* name) { return static_cast<const char*>(std::getenv(name)); })};
    for (int i = 2; i + 1 < argc; i += 2) {
      const std::string name = argv[i];
      if (name == "--local-dir") options.local_dir = argv[i + 1];
      if (name == "--parts") options.parts = std::atoi(argv[i + 1]);
    }
    const auto source = parse_source(argc > 1 ? argv[1] : "", options.hub.endpoint);
    if (!source) fail(ErrorCode::InvalidArgument, "a source is wanted");
    const Log log([](LogLevel level, const std::string& text) {
      if (level != LogLevel::Debug) std::fprintf(stderr, "%s\n", text.c_str());
    });
    const Downloaded got = fetch_source(*source, options, {}, log);
    Json report{{"root", got.root.string()},
                {"commit", got.commit},
                {"licence", got.licence},
                {"gated", got.gated},
                {"files", Json::array()}};
    for (const FetchedFile& f : got.files)
      report["files"].push_back({{"path", f.path},
                                 {"local", f.local.string()},
                                 {"size", f.size},
                                 {"sha256", f.sha256},
                                 {"was_present", f.was_present}});
    std::printf("%s\n", report.dump().c_str());
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s: %s\n  hint: %s\n", name_of(e.code()), e.what(), e.hint().plain().c_str());
    return 1;
  }
}
