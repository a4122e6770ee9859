#include "cli/install_offer.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/models/install.h"
#include "cli/user_input.h"
#include "hub/registry/starter.h"

namespace flux2 {

namespace {

// The starter that the error's hint would install; null when it suggests something else.
const Starter* suggested_starter(const Error& error) {
  constexpr std::string_view kCommand = "models install ";
  for (const Suggestion& s : error.hint().suggestions)
    if (s.kind == Suggestion::Run && s.name.starts_with(kCommand)) return find_starter(s.name.substr(kCommand.size()));
  return nullptr;
}

}  // namespace

bool installed_on_request(Invocation& run, const Error& error) {
  const Starter* starter = error.code() == ErrorCode::NotFound ? suggested_starter(error) : nullptr;
  const bool named = run.settings.has("model");  // somebody who named no model did not ask for this one
  const bool yes = run.settings.flag("yes");
  const bool terminal = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
  if (!starter || !named || run.settings.flag("offline") || run.settings.flag("dry-run") || (!yes && !terminal)) return false;
  uint64_t bytes = 0;
  std::string licence;
  for (const StarterPart& part : starter->parts) {
    bytes += part.bytes;
    if (licence.find(part.licence) == licence.npos) licence += (licence.empty() ? "" : ", ") + part.licence;
  }
  run.console.note(error.what());
  if (!confirmed(run, fmt::format("Install {} now ({} in all, licence: {})?", starter->name, byte_text(bytes), licence)))
    return false;
  const Settings before = run.settings;
  run.settings = before.with({{"yes", {{"true"}, "the answer"}}});  // asked once
  try {
    install_from(run, starter->name);
  } catch (...) {
    run.settings = before;
    throw;
  }
  run.settings = before;
  return true;
}

}  // namespace flux2
