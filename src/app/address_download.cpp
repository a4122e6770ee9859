#include "app/address_download.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "app/install_model.h"
#include "app/registry_access.h"
#include "base/path_exists.h"
#include "base/path_inside.h"
#include "base/text.h"
#include "hub/registry/check_record.h"
#include "net/hide_token.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// What tells one revision of the file from another, as far as the server says.
std::string revision_of(const PlannedFile& file, const std::string& token) {
  std::string text = file.etag;
  if (file.size > 0) text += fmt::format("{}{} bytes", text.empty() ? "" : ", ", file.size);
  return hide_token(printable(text), token);
}

// The models that the address gave when it was last installed. With a named folder, only those that lie there.
std::vector<ModelRecord> given_before(const std::string& url, const fs::path& local_dir, const AppContext& context) {
  std::vector<ModelRecord> records;
  if (const auto registry = look_into_registry(context)) records = registry->all();
  const fs::path folder = local_dir.empty() ? fs::path() : fs::absolute(local_dir).lexically_normal();
  std::erase_if(records, [&](const ModelRecord& r) {
    return r.source.kind != "url" || r.source.ref != url || (!folder.empty() && !is_inside(r.path, folder));
  });
  const auto newest = std::ranges::max_element(records, {}, &ModelRecord::installed_at);
  if (newest == records.end()) return {};
  const fs::path path = newest->path;
  std::erase_if(records, [&](const ModelRecord& r) { return r.path != path; });
  return records;
}

// Whether the new file takes the place of the one that the address gave before: a copy of ours with the same kinds of parts.
bool replaces(const std::vector<Described>& parts, const std::vector<ModelRecord>& before, const AppContext& context) {
  if (before.empty() || before[0].in_place || is_folder(before[0].path)) return false;
  const fs::path models = fs::absolute(data_folder(context.environment) / "models").lexically_normal();
  if (!is_inside(before[0].path, models) || before[0].path.extension() != parts[0].record.path.extension()) return false;
  std::set<ModelType> types, types_before;
  for (const Described& part : parts) types.insert(part.record.type);
  for (const ModelRecord& r : before) types_before.insert(r.type);
  return types == types_before;
}

}  // namespace

AddressDownload plan_address(const Source& source, FetchOptions options, const std::vector<std::string>& from_start,
                             const AppContext& context) {
  AddressDownload download;
  const fs::path named = options.local_dir;
  // Until it is known what the file is, it waits where nobody looks for models.
  if (named.empty()) {
    download.incoming =
        std::make_unique<IncomingFolder>(data_folder(context.environment), source.url, options.cancelled, context.log);
    options.local_dir = download.incoming->path();
  }
  download.before = given_before(source.url, named, context);
  const bool whole = !download.before.empty() && std::ranges::all_of(download.before, [](const ModelRecord& r) {
    return quick_check(r).state == ModelState::Ready;
  });
  PlannedFile here{.url = source.url, .present = true};
  if (whole) {
    here.target = download.before[0].path;
    here.path = here.target.filename().string();
    here.size = download.before[0].bytes;
  }
  if (whole && options.hub.offline) {
    download.plan = {.source = source, .root = here.target.parent_path(), .files = {here}, .from_cache = true};
    download.is_here = true;
    return download;
  }
  download.plan = plan_fetch(source, options, context.log);
  PlannedFile& file = download.plan.files.at(0);
  download.revision = revision_of(file, options.hub.token);
  const auto is_same = [&](const ModelRecord& r) { return r.source.revision == download.revision; };
  const bool again = std::ranges::find(from_start, file.path) != from_start.end();
  download.is_here = whole && !again && !download.revision.empty() && std::ranges::all_of(download.before, is_same);
  if (download.is_here) {
    here.path = file.path;
    file = here;
    return download;
  }
  if (download.incoming) download.incoming->prepare(file, download.revision);
  else if (whole && !download.before[0].source.revision.empty()) file.present = false;  // of that size, but another revision
  return download;
}

std::vector<Described> moved_into_place(FetchedFile& file, const std::vector<ModelRecord>& before, const CopyProgress& copying,
                                        const AppContext& context) {
  const std::vector<Described> parts = identify(file.local, context.log);
  require_usable(parts, file.local);
  if (replaces(parts, before, context)) {
    move_over(file.local, before[0].path, copying);
    file.local = before[0].path;
  } else {
    const fs::path folder = data_folder(context.environment) / "models" / role_folder(parts[0].record.type);
    file.local = moved_to_free_name(file.local, folder, copying);
  }
  return identify(file.local, context.log);
}

}  // namespace flux2
