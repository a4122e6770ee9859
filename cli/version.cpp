#include <fmt/format.h>

#include "base/pattern.h"
#include "cli/command.h"
#include "engine/engine.h"
#include "engine/gpu_ranks.h"
#include "hub/registry/registry.h"
#include "image/colour_profile.h"
#include "image/format.h"
#include "net/http.h"
#include "record/generation_record.h"
#include "server/server.h"

namespace flux2 {

namespace {

std::string names(const std::vector<ImageFormat>& formats) {
  std::string text;
  for (const ImageFormat format : formats) text += (text.empty() ? "" : ", ") + std::string(name_of(format));
  return text;
}

}  // namespace

int run_version(Invocation& run) {
  Console& console = run.console;
  check(run.positional.empty(), "version takes no arguments");
  if (console.json()) {
    console.result(Json{{"version", program_version()},
                        {"reads", names(readable_formats())},
                        {"writes", names(available_formats())},
                        {"colour_profiles", profiles_available()},
                        {"cuda", built_with_cuda()},
                        {"nccl", built_with_nccl()},
                        {"toml", toml_available()},
                        {"registry", registry_available()},
                        {"downloads", HttpClient::available()},
                        {"server", server_available()},
                        {"postgresql", server_knows_postgres()},
                        {"regular_expressions", patterns_available()},
                        {"compiler", __VERSION__},
                        {"cpu", cpu_summary()}}
                       .dump());
    return 0;
  }
  console.result(program_version());
  if (console.verbosity() == 0) return 0;
  const auto yes = [](bool has) { return has ? "yes" : "not in this build"; };
  console.result(fmt::format("compiler:     g++ {}", __VERSION__));
  console.result(fmt::format("reads:        {}", names(readable_formats())));
  console.result(fmt::format("writes:       {}", names(available_formats())));
  bool webp = false;
  for (const ImageFormat format : available_formats()) webp |= format == ImageFormat::WebP;
  console.result(fmt::format("WebP:         {}", yes(webp)));
  console.result(fmt::format("ICC profiles: {}", yes(profiles_available())));
  console.result(fmt::format("CUDA:         {}", yes(built_with_cuda())));
  console.result(fmt::format("NCCL:         {}", yes(built_with_nccl())));
  console.result(fmt::format("config files: {}", yes(toml_available())));
  console.result(fmt::format("registry:     {}", yes(registry_available())));
  console.result(fmt::format("downloads:    {}", yes(HttpClient::available())));
  console.result(fmt::format("server:       {}", yes(server_available())));
  console.result(fmt::format("PostgreSQL:   {}", yes(server_knows_postgres())));
  console.result(fmt::format("expressions:  {}", yes(patterns_available())));
  console.result(fmt::format("CPU:          {}", cpu_summary()));
  return 0;
}

}  // namespace flux2
