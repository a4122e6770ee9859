#include "server/store/project_archive.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "base/text.h"
#include "server/store/asset_catalog.h"
#include "server/store/asset_rows.h"
#include "server/store/element_store.h"
#include "server/store/ids.h"
#include "server/store/shot_store.h"
#include "server/store/triggers.h"

namespace flux2 {

namespace {

constexpr const char* kManifest = "project.json";
constexpr const char* kFormat = "flux2 project";
constexpr int kArchiveVersion = 1;
constexpr size_t kMostArchiveRows = 200'000;

std::string file_name_of(const Asset& asset) {
  return fmt::format("files/{}{}", asset.id, std::filesystem::path(asset.path).extension().string());
}

// ---- export ----

std::vector<CatalogItem> items_of_project(const std::string& project, const AssetCatalog& catalog,
                                          const std::set<std::string>& used) {
  std::vector<CatalogItem> items;
  std::set<std::string> there;
  for (std::string after;;) {
    auto page = catalog.search({.project = project, .oldest_first = true, .after = after, .limit = 200});
    if (page.empty()) break;
    after = page.back().asset.id;
    for (CatalogItem& item : page) {
      if (item.asset.missing) continue;
      there.insert(item.asset.id);
      items.push_back(std::move(item));
    }
  }
  for (const std::string& id : used)
    if (!there.contains(id))
      if (auto item = catalog.get(id); item && !item->asset.missing && item->deleted == 0) items.push_back(std::move(*item));
  return items;
}

Json item_row(const CatalogItem& item) {
  return {{"id", item.asset.id},         {"file", file_name_of(item.asset)},
          {"kind", item.asset.kind},     {"mime", item.asset.mime},
          {"sha256", item.asset.sha256}, {"parent", item.asset.parent},
          {"bytes", item.asset.bytes},   {"width", item.asset.width},
          {"height", item.asset.height}, {"created", item.asset.created},
          {"name", item.name},           {"prompt", item.prompt},
          {"words", item.words},         {"model", item.model},
          {"loras", item.loras},         {"tags", item.tags},
          {"board", item.board},         {"seed", item.seed},
          {"starred", item.starred}};
}

Json element_row(const Element& element) {
  return {{"id", element.id},
          {"name", element.name},
          {"type", element.type},
          {"trigger", element.trigger},
          {"description", element.description},
          {"weight_note", element.weight_note},
          {"loras", element.loras},
          {"max_refs", element.max_refs},
          {"images", element.images},
          {"created", element.created},
          {"updated", element.updated}};
}

// ---- import ----

[[noreturn]] void refuse_manifest(const std::string& why) {
  fail(ErrorCode::InvalidArgument, "the archive is not a project of this program, or it is damaged: {}", why);
}

// Reads the members of a row and refuses wrong types.
class Row {
 public:
  explicit Row(const Json& json) : json_(json) {
    if (!json.is_object()) refuse_manifest("a row is not an object");
  }
  std::string text(const char* name, size_t most = 1 << 20) const {
    const Json value = json_.value(name, Json(""));
    if (!value.is_string() || value.get_ref<const std::string&>().size() > most ||
        value.get_ref<const std::string&>().find('\0') != std::string::npos)
      refuse_manifest(fmt::format("{} is not a text of at most {} bytes", name, most));
    return value.get<std::string>();
  }
  std::string id() const {
    std::string id = text("id");
    if (!is_id(id)) refuse_manifest("an id is malformed");
    return id;
  }
  int64_t integer(const char* name, int64_t otherwise = 0) const {
    const Json value = json_.value(name, Json(otherwise));
    if (!value.is_number_integer()) refuse_manifest(fmt::format("{} is not a whole number", name));
    return value.get<int64_t>();
  }
  bool flag(const char* name) const {
    const Json value = json_.value(name, Json(false));
    if (!value.is_boolean()) refuse_manifest(fmt::format("{} is not true or false", name));
    return value.get<bool>();
  }
  std::vector<std::string> texts(const char* name, size_t most) const {
    const Json& list = rows(name);
    if (list.size() > most) refuse_manifest(fmt::format("{} has too many entries", name));
    std::vector<std::string> found;
    for (const Json& one : list) {
      if (!one.is_string()) refuse_manifest(fmt::format("{} is not a list of texts", name));
      found.push_back(one.get<std::string>());
    }
    return found;
  }
  const Json& rows(const char* name) const {
    static const Json none = Json::array();
    const auto found = json_.find(name);
    if (found == json_.end()) return none;
    if (!found->is_array() || found->size() > kMostArchiveRows) refuse_manifest(fmt::format("{} is not a list of rows", name));
    return *found;
  }
  // An object whose members are settings of these names: whole numbers, numbers and texts.
  Json settings(const char* name, const std::set<std::string_view>& integers, const std::set<std::string_view>& numbers,
                const std::set<std::string_view>& texts) const {
    Json value = json_.value(name, Json::object());
    if (!value.is_object()) refuse_manifest(fmt::format("{} is not an object", name));
    for (const auto& [key, setting] : value.items())
      if (!(setting.is_number_integer() && integers.contains(key)) && !(setting.is_number() && numbers.contains(key)) &&
          !(setting.is_string() && texts.contains(key)))
        refuse_manifest(fmt::format("{} has an unknown or invalid member: {}", name, printable(key)));
    return value;
  }

 private:
  const Json& json_;
};

Json read_manifest(const ZipReader& archive, JsonLimits limits) {
  if (!archive.contains(kManifest)) refuse_manifest("project.json is missing");
  constexpr uint64_t kLargest = uint64_t{256} << 20;
  if (archive.size_of(kManifest) > kLargest) refuse_manifest("project.json is too large");
  const std::vector<std::byte> bytes = archive.read(kManifest);
  limits.bytes = std::max(limits.bytes, bytes.size());
  limits.keys = std::max<size_t>(limits.keys, 32 * kMostArchiveRows);
  limits.values = std::max<size_t>(limits.values, 64 * kMostArchiveRows);
  Json manifest;
  try {
    manifest = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, limits);
  } catch (const Error& e) {
    refuse_manifest(e.what());
  }
  if (!manifest.is_object() || manifest.value("format", Json()) != kFormat) refuse_manifest("project.json has another format");
  const Json version = manifest.value("version", Json());
  if (version != kArchiveVersion)
    fail(ErrorCode::InvalidArgument, "the archive has version {}; this program reads version {}", version.dump(),
         kArchiveVersion);
  return manifest;
}

// The rows of an archive with new ids.
class Importer {
 public:
  Importer(const ZipReader& archive, AssetStore& assets, const JsonLimits& limits)
      : archive_(archive), assets_(assets), manifest_(read_manifest(archive, limits)) {}

  Project run() {
    read_rows();
    try {
      read_files();
      link_rows();
      assets_.database().writing([&](SqlConnection& sql) { insert(sql); });
    } catch (...) {
      for (const CatalogItem& item : items_) assets_.remove_blob(item.asset);
      throw;
    }
    return project_;
  }

 private:
  std::string new_id_for(const std::string& old) {
    const std::string id = new_id();
    if (!ids_.emplace(old, id).second) refuse_manifest("an id is there twice");
    return id;
  }
  std::string known(const std::string& old) const {
    const auto found = ids_.find(old);
    return found == ids_.end() ? std::string() : found->second;
  }

  void read_rows() {
    const Json described = manifest_.value("project", Json());  // a Row refers to what it reads
    const Row all(manifest_), about(described);
    project_.id = new_id();
    project_.name = about.text("name", kLongestName);
    if (trimmed(project_.name).empty()) refuse_manifest("the project has no name");
    project_.settings =
        about.settings("settings", {"width", "height", "seed"}, {}, {"model", "style_prompt", "negative", "notes"});
    project_.created = project_.updated = now_ms();
    for (const Json& json : all.rows("boards")) {
      const Row row(json);
      boards_.push_back({.id = new_id_for(row.id()),
                         .project = project_.id,
                         .name = row.text("name", kLongestName),
                         .cover = row.text("cover"),
                         .position = row.integer("position")});
    }
    for (const Json& json : all.rows("elements")) read_element_row(Row(json));
    for (const Json& json : all.rows("scenes")) {
      const Row row(json);
      scenes_.push_back({.id = new_id_for(row.id()),
                         .project = project_.id,
                         .name = row.text("name", kLongestName),
                         .text = row.text("text"),
                         .position = row.integer("position")});
    }
    for (const Json& json : all.rows("shots")) {
      const Row row(json);
      shots_.push_back({.id = new_id_for(row.id()),
                        .project = project_.id,
                        .scene = known(row.text("scene")),
                        .fields = row.settings("fields", {"seed", "width", "height", "num_frames", "steps"}, {"guidance"},
                                               {"action", "prompt", "negative", "dialogue", "character", "shot_type"}),
                        .matched = Json::array(),
                        .last_job = {},
                        .thumbnail = row.text("thumbnail"),
                        .position = row.integer("position"),
                        .created = row.integer("created")});
    }
  }

  void read_element_row(const Row& row) {
    static const std::set<std::string> types = {"character", "location", "object", "style"};
    Element element;
    element.id = new_id_for(row.id());
    element.project = project_.id;
    element.name = row.text("name", kLongestName);
    element.type = row.text("type");
    element.trigger = row.text("trigger");
    if (!types.contains(element.type) || !is_trigger(element.trigger)) refuse_manifest("an element has a wrong type or trigger");
    if (!triggers_.insert(folded_trigger(element.trigger)).second) refuse_manifest("two elements have the same trigger");
    element.description = row.text("description");
    element.weight_note = row.text("weight_note");
    element.loras = row.rows("loras");
    for (const Json& lora : element.loras)
      if (!lora.is_object() || !lora.value("name", Json()).is_string()) refuse_manifest("an adapter has no name");
    element.max_refs = std::clamp<int64_t>(row.integer("max_refs", 1), 0, 16);
    element.images = row.texts("images", kMostArchiveRows);
    element.created = row.integer("created");
    element.updated = row.integer("updated");
    elements_.push_back(std::move(element));
  }

  void read_files() {
    std::map<std::pair<std::string, std::string>, std::string> stored;  // by content and kind
    for (const Json& json : Row(manifest_).rows("assets")) {
      const Row row(json);
      CatalogItem item;
      item.asset.kind = row.text("kind", 20);
      static const std::set<std::string> kinds = {"image", "sheet", "upload", "reference", "mask"};
      if (!kinds.contains(item.asset.kind)) refuse_manifest("an image is of an unknown kind");
      const std::string old = row.id(), sum = row.text("sha256");
      if (const auto twin = stored.find({sum, item.asset.kind}); twin != stored.end()) {  // a project has equal bytes once
        if (!ids_.emplace(old, twin->second).second) refuse_manifest("an id is there twice");
        continue;
      }
      item.asset.project = project_.id;
      item.asset.parent = row.text("parent");
      item.asset = assets_.write_blob(archive_.read(row.text("file", 200)), std::move(item.asset));
      items_.push_back(item);
      if (item.asset.sha256 != sum) refuse_manifest("the bytes of an image are not those that were exported");
      if (!ids_.emplace(old, item.asset.id).second) refuse_manifest("an id is there twice");
      stored[{sum, item.asset.kind}] = item.asset.id;
      CatalogItem& kept = items_.back();
      kept.asset.created = row.integer("created");
      kept.name = row.text("name", kLongestName);
      kept.prompt = row.text("prompt");
      kept.words = row.text("words");
      kept.model = row.text("model");
      kept.loras = row.texts("loras", 64);
      kept.tags = usable_tags(row.texts("tags", kMostArchiveRows));
      kept.board = row.text("board");
      kept.seed = row.integer("seed", -1);
      kept.starred = row.flag("starred");
    }
  }

  // What pointed to an old id points to the new one; what is not in the archive is left out.
  void link_rows() {
    for (CatalogItem& item : items_) item.asset.parent = known(item.asset.parent), item.board = known(item.board);
    for (Board& board : boards_) board.cover = known(board.cover);
    for (Element& element : elements_) {
      for (std::string& image : element.images) image = known(image);
      std::erase(element.images, std::string());
      // Jobs of older versions of this program have added more.
      if (element.images.size() > kMostElementImages) element.images.resize(kMostElementImages);
    }
    for (Shot& shot : shots_) shot.thumbnail = known(shot.thumbnail);
  }

  void insert(SqlConnection& sql) const {
    insert_project_row(sql, project_);
    for (const Board& board : boards_) insert_board_row(sql, board);
    for (const CatalogItem& item : items_) {
      insert_asset_row(sql, item.asset);
      write_item(sql, item);
    }
    for (const Element& element : elements_) insert_element_row(sql, element);
    for (const StoryScene& scene : scenes_) insert_scene_row(sql, scene);
    for (const Shot& shot : shots_) insert_shot_row(sql, shot);
  }

  const ZipReader& archive_;
  AssetStore& assets_;
  const Json manifest_;
  std::map<std::string, std::string> ids_;  // old → new
  std::set<std::string> triggers_;
  Project project_;
  std::vector<Board> boards_;
  std::vector<Element> elements_;
  std::vector<StoryScene> scenes_;
  std::vector<Shot> shots_;
  std::vector<CatalogItem> items_;
};

}  // namespace

std::vector<ZipStream::Entry> archive_of(const std::string& project, const AssetStore& assets) {
  SqlDatabase& database = assets.database();
  const auto about = ProjectStore(database).get(project);
  if (!about) fail(ErrorCode::NotFound, "project not found");
  Json manifest = {{"format", kFormat},
                   {"version", kArchiveVersion},
                   {"project", {{"name", about->name}, {"settings", about->settings}, {"created", about->created}}},
                   {"boards", Json::array()},
                   {"elements", Json::array()},
                   {"scenes", Json::array()},
                   {"shots", Json::array()},
                   {"assets", Json::array()}};
  std::set<std::string> used;  // images that may be of other projects
  for (const Board& board : ProjectStore(database).boards(project)) {
    manifest["boards"].push_back({{"id", board.id}, {"name", board.name}, {"cover", board.cover}, {"position", board.position}});
    if (!board.cover.empty()) used.insert(board.cover);
  }
  for (const Element& element : ElementStore(database).list(project, false)) {
    manifest["elements"].push_back(element_row(element));
    used.insert(element.images.begin(), element.images.end());
  }
  const ShotStore shots(database);
  for (const StoryScene& scene : shots.scenes(project))
    manifest["scenes"].push_back({{"id", scene.id}, {"name", scene.name}, {"text", scene.text}, {"position", scene.position}});
  for (const Shot& shot : shots.list(project)) {
    manifest["shots"].push_back({{"id", shot.id},
                                 {"scene", shot.scene},
                                 {"fields", shot.fields},
                                 {"thumbnail", shot.thumbnail},
                                 {"position", shot.position},
                                 {"created", shot.created}});
    if (!shot.thumbnail.empty()) used.insert(shot.thumbnail);
  }
  std::vector<ZipStream::Entry> entries = {{.name = kManifest, .content = {}}};
  for (const CatalogItem& item : items_of_project(project, AssetCatalog(database), used)) {
    manifest["assets"].push_back(item_row(item));
    entries.push_back({.name = file_name_of(item.asset),
                       .content = {},
                       .file = [&assets, asset = item.asset] { return assets.path_of(asset); },
                       .size = item.asset.bytes});
  }
  entries.front().content = manifest.dump(1, ' ', false, Json::error_handler_t::replace);
  return entries;
}

Project import_archive(const ZipReader& archive, AssetStore& assets, const JsonLimits& limits) {
  Project project = Importer(archive, assets, limits).run();
  return ProjectStore(assets.database()).get(project.id).value_or(project);
}

}  // namespace flux2
