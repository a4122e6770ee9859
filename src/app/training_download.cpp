#include "app/training_download.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

Source state_source(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string place = text.substr(0, colon);
  const size_t owner = place.find('/'), name = owner == place.npos ? place.npos : place.find('/', owner + 1);
  check(owner != place.npos && owner > 0 && name != place.npos && name > owner + 1 && name + 1 < place.size(),
        "resume_from_huggingface: \"{}\" is not a folder of a repository; write owner/name/folder or owner/name/folder:revision",
        printable(text));
  std::string path = place.substr(name + 1);
  while (path.ends_with('/')) path.pop_back();
  Source source{.repository = place.substr(0, name), .paths = {path}};
  if (colon == text.npos) return source;
  const std::string rest = text.substr(colon + 1);
  const size_t second = rest.find(':');
  if (const std::string revision = rest.substr(0, second); !revision.empty()) source.revision = revision;
  check(second == rest.npos || rest.substr(second + 1) == "model",
        "resume_from_huggingface: states are downloaded from repositories of the type model, not \"{}\"",
        printable(rest.substr(second + 1)));
  return source;
}

std::filesystem::path download_state(const std::string& text, const std::string& token, const AppContext& context,
                                     const std::function<bool()>& cancelled) {
  const Source source = state_source(text);
  FetchOptions options{.hub = hub_settings(context.environment, token)};
  options.cancelled = cancelled;
  const Downloaded state =
      in_context("the state " + printable(text), [&] { return fetch_source(source, options, {}, context.log); });
  const std::filesystem::path folder = state.root / source.paths[0];
  context.log.info("the state {} of {} is in {}", source.paths[0], source.repository, folder.string());
  return folder;
}

}  // namespace flux2
