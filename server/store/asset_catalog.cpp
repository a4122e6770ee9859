#include "server/store/asset_catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/text.h"
#include "server/store/asset_rows.h"
#include "server/store/element_store.h"
#include "server/store/folded_text.h"
#include "server/store/ids.h"
#include "server/store/job_rows.h"
#include "server/store/sql_rows.h"
#include "text/unicode.h"

namespace flux2 {

namespace {

constexpr const char* kItemColumns = "name, prompt, model, loras, board, seed, starred, deleted, words";
constexpr size_t kMostRelatives = 200;

CatalogItem read_item(const SqlStatement& row) {
  CatalogItem item;
  item.asset = read_asset(row);
  constexpr int first = kAssetColumnCount;
  item.name = row.text(first);
  item.prompt = row.text(first + 1);
  item.model = row.text(first + 2);
  std::istringstream loras(row.text(first + 3));
  for (std::string name; std::getline(loras, name);)
    if (!name.empty()) item.loras.push_back(name);
  item.board = row.text(first + 4);
  item.seed = row.integer(first + 5);
  item.starred = row.integer(first + 6) != 0;
  item.deleted = row.integer(first + 7);
  item.words = row.text(first + 8);
  return item;
}

// The words of a search, in small letters.
std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(folded(text));
  std::vector<std::string> found;
  for (std::string word; words >> word;) found.push_back(word);
  return found;
}

// A pattern of LIKE that finds the text anywhere.
std::string containing(const std::string& text) {
  std::string pattern = "%";
  for (const char c : text) {
    if (c == '%' || c == '_' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern + "%";
}

// A condition with its parameters in order.
struct Condition {
  std::string sql;
  std::vector<SqlValue> values;

  void add(const std::string& part, const std::string& value) {
    sql += " AND " + part;
    values.push_back({.type = SqlValue::Type::Text, .text = value});
  }
  void add(const std::string& part, int64_t value) {
    sql += " AND " + part;
    values.push_back({.type = SqlValue::Type::Integer, .integer = value});
  }
  void bind_to(SqlStatement& statement) const {
    for (const SqlValue& value : values) {
      if (value.type == SqlValue::Type::Text) statement.bind(std::string_view(value.text));
      else statement.bind(value.integer);
    }
  }
};

Condition condition_of(const CatalogFilter& filter, bool with_page) {
  Condition condition;
  condition.sql = filter.trash ? "deleted <> 0" : "deleted = 0";
  if (filter.project) condition.add("project = ?", *filter.project);
  if (!filter.board.empty()) condition.add("board = ?", filter.board);
  if (filter.kind.empty()) condition.sql += " AND kind <> 'temporary'";
  else condition.add("kind = ?", filter.kind);
  if (!filter.tag.empty()) condition.add("id IN (SELECT asset FROM asset_tags WHERE tag = ?)", filter.tag);
  if (!filter.model.empty()) condition.add("model = ?", filter.model);
  if (!filter.lora.empty()) condition.add("loras LIKE ? ESCAPE '\\'", containing("\n" + filter.lora + "\n"));
  if (filter.seed) condition.add("seed >= 0 AND seed = ?", *filter.seed);  // as the index is written
  if (filter.width) condition.add("width = ?", *filter.width);
  if (filter.height) condition.add("height = ?", *filter.height);
  if (filter.from) condition.add("created >= ?", *filter.from);
  if (filter.to) condition.add("created < ?", *filter.to);
  // A value that stands in the statement, so that SQLite can use the index of starred ones.
  if (filter.starred) condition.sql += *filter.starred ? " AND starred = 1" : " AND starred = 0";
  for (const std::string& word : words_of(filter.words)) condition.add("search LIKE ? ESCAPE '\\'", containing(word));
  if (with_page && !filter.after.empty()) condition.add(filter.oldest_first ? "id > ?" : "id < ?", filter.after);
  return condition;
}

std::vector<std::string> tags_of(SqlConnection& sql, const std::string& id) {
  SqlStatement rows = sql.prepare("SELECT tag FROM asset_tags WHERE asset = ? ORDER BY tag");
  rows.bind(std::string_view(id));
  return all_rows(rows, first_text);
}

void add_tags_to(SqlConnection& sql, std::vector<CatalogItem>& items) {
  if (items.empty()) return;
  std::map<std::string, CatalogItem*> by_id;
  std::string places;
  for (CatalogItem& item : items) {
    by_id[item.asset.id] = &item;
    places += places.empty() ? "?" : ", ?";
  }
  SqlStatement rows = sql.prepare(fmt::format("SELECT asset, tag FROM asset_tags WHERE asset IN ({}) ORDER BY tag", places));
  for (const auto& [id, item] : by_id) rows.bind(std::string_view(id));
  while (rows.step())
    if (const auto found = by_id.find(rows.text(0)); found != by_id.end()) found->second->tags.push_back(rows.text(1));
}

std::optional<CatalogItem> find_item(SqlConnection& sql, const std::string& id, const char* lock = "") {
  SqlStatement row = sql.prepare(fmt::format("SELECT {}, {} FROM assets WHERE id = ? {}", kAssetColumns, kItemColumns, lock));
  row.bind(std::string_view(id));
  if (!row.step()) return std::nullopt;
  CatalogItem item = read_item(row);
  item.tags = tags_of(sql, id);
  return item;
}

// What a search by words looks at.
std::string search_text(const CatalogItem& item) {
  return folded(fmt::format("{}\n{}\n{}\n{}", item.name, item.prompt, item.words, fmt::join(item.tags, "\n")));
}

void save_item(SqlConnection& sql, const CatalogItem& item) {
  std::string loras = item.loras.empty() ? "" : "\n";
  for (const std::string& name : item.loras) loras += name + "\n";
  sql.prepare(
         "UPDATE assets SET name = ?, prompt = ?, search = ?, model = ?, words = ?, loras = ?, seed = ?, starred = ?, board = ?, "
         "project = "
         "?, "
         "parent = ? WHERE id = ?")
      .bind(std::string_view(item.name))
      .bind(std::string_view(item.prompt))
      .bind(search_text(item))
      .bind(std::string_view(item.model))
      .bind(std::string_view(item.words))
      .bind(loras)
      .bind(item.seed)
      .bind(item.starred ? 1 : 0)
      .bind(std::string_view(item.board))
      .bind(std::string_view(item.asset.project))
      .bind(std::string_view(item.asset.parent))
      .bind(std::string_view(item.asset.id))
      .run();
}

void save_tags(SqlConnection& sql, const CatalogItem& item) {
  sql.prepare("DELETE FROM asset_tags WHERE asset = ?").bind(std::string_view(item.asset.id)).run();
  for (const std::string& tag : item.tags)
    sql.prepare("INSERT INTO asset_tags (tag, asset) VALUES (?, ?)")
        .bind(std::string_view(tag))
        .bind(std::string_view(item.asset.id))
        .run();
}

std::string checked_tag(const std::string& text) {
  std::string tag(trimmed(text));
  check(!tag.empty() && tag.size() <= kLongestTag && is_utf8(tag) && tag.find('\n') == std::string::npos,
        "a tag must have 1 to {} bytes and no line end", kLongestTag);
  return tag;
}

void apply_tags(CatalogItem& item, const CatalogChange& change) {
  if (change.tags) item.tags = *change.tags;
  item.tags.insert(item.tags.end(), change.add_tags.begin(), change.add_tags.end());
  for (std::string& tag : item.tags) tag = checked_tag(tag);
  for (const std::string& tag : change.remove_tags) std::erase(item.tags, tag);
  std::sort(item.tags.begin(), item.tags.end());
  item.tags.erase(std::unique(item.tags.begin(), item.tags.end()), item.tags.end());
  check(item.tags.size() <= kMostTags, "an image can have at most {} tags", kMostTags);
}

// Whether a project has an asset with the same bytes and kind.
bool has_equal(SqlConnection& sql, const Asset& asset, const std::string& project) {
  SqlStatement row = sql.prepare("SELECT id FROM assets WHERE project = ? AND sha256 = ? AND kind = ?");
  return row.bind(std::string_view(project)).bind(std::string_view(asset.sha256)).bind(std::string_view(asset.kind)).step();
}

std::string asset_named(const Json& text) {
  constexpr std::string_view kPrefix = "asset:";
  const std::string name = text.is_string() ? text.get<std::string>() : std::string();
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : std::string();
}

// The image that an image was made from: what was painted over, else the first reference.
std::string parent_in(const Json& request) {
  if (const auto canvas = request.find("canvas"); canvas != request.end()) return asset_named(*canvas);
  const auto references = request.find("references");
  return references != request.end() && references->is_array() && !references->empty() ? asset_named((*references)[0]) : "";
}

// An image that was made for an element or a shot becomes one of theirs.
void hand_over_image(SqlConnection& sql, const Job& job, const JobImage& image) {
  const auto resolution = job.request.find("resolution");
  if (resolution == job.request.end() || !resolution->is_object()) return;
  if (const std::string element = resolution->value("element", std::string()); !element.empty())
    add_element_image(sql, element, image.asset, now_ms());
  if (const std::string shot = resolution->value("shot", std::string()); !shot.empty() && image.index == 0)
    sql.prepare("UPDATE shots SET thumbnail = ? WHERE id = ?")
        .bind(std::string_view(image.asset))
        .bind(std::string_view(shot))
        .run();
}

}  // namespace

std::vector<std::string> usable_tags(const std::vector<std::string>& tags) {
  std::vector<std::string> usable;
  for (const std::string& text : tags) {
    std::string tag = replace_invalid_utf8(text);
    std::replace_if(
        tag.begin(), tag.end(), [](char c) { return c == '\n' || c == '\0'; }, ' ');
    tag = trimmed(tag);
    if (tag.size() > kLongestTag) {
      size_t end = kLongestTag;
      while ((tag[end] & 0xC0) == 0x80) --end;  // within a character
      tag = trimmed(tag.substr(0, end));
    }
    const bool is_new = std::find(usable.begin(), usable.end(), tag) == usable.end();
    if (!tag.empty() && is_new && usable.size() < kMostTags) usable.push_back(std::move(tag));
  }
  std::sort(usable.begin(), usable.end());
  return usable;
}

void describe_image(SqlConnection& sql, const Job& job, const JobImage& image) {
  hand_over_image(sql, job, image);
  auto item = find_item(sql, image.asset, sql.locking());
  if (!item || item->seed >= 0) return;
  const auto text = [&](const char* name) {
    const auto found = job.request.find(name);
    return found != job.request.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  item->prompt = text("prompt");
  // As a person wrote it, before names of elements were replaced.
  if (const auto resolution = job.request.find("resolution"); resolution != job.request.end() && resolution->is_object())
    item->prompt = resolution->value("sent_prompt", item->prompt);
  if (text("prompt") != item->prompt) item->words = text("prompt");
  item->model = job.model_key;
  item->seed = static_cast<int64_t>(image.seed);
  if (item->asset.parent.empty()) item->asset.parent = parent_in(job.request);
  if (const auto loras = job.request.find("loras"); loras != job.request.end() && loras->is_array())
    for (const Json& lora : *loras) {
      const std::string name = lora.is_object()   ? lora.value("name", std::string())
                               : lora.is_string() ? lora.get<std::string>()
                                                  : "";
      item->loras.push_back(name.substr(0, name.starts_with("run:") ? name.npos : name.find(':')));
    }
  if (const auto tags = job.request.find("tags"); tags != job.request.end() && tags->is_array()) {
    for (const Json& tag : *tags)
      if (tag.is_string()) item->tags.push_back(tag.get<std::string>());
    item->tags = usable_tags(item->tags);
    save_tags(sql, *item);
  }
  save_item(sql, *item);
}

void forget_asset(SqlConnection& sql, const std::string& id) {
  sql.prepare("DELETE FROM asset_tags WHERE asset = ?").bind(std::string_view(id)).run();
  sql.prepare("UPDATE boards SET cover = '' WHERE cover = ?").bind(std::string_view(id)).run();
  sql.prepare("DELETE FROM element_images WHERE asset = ?").bind(std::string_view(id)).run();
  sql.prepare("UPDATE shots SET thumbnail = '' WHERE thumbnail = ? AND thumbnail <> ''").bind(std::string_view(id)).run();
}

void write_item(SqlConnection& sql, const CatalogItem& item) {
  save_tags(sql, item);
  save_item(sql, item);
}

std::optional<CatalogItem> AssetCatalog::get(const std::string& id) const {
  return database_.reading([&](SqlConnection& sql) { return find_item(sql, id); });
}

std::vector<CatalogItem> AssetCatalog::search(const CatalogFilter& filter) const {
  const Condition condition = condition_of(filter, true);
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(fmt::format("SELECT {}, {} FROM assets WHERE {} ORDER BY id {} LIMIT ?", kAssetColumns,
                                                kItemColumns, condition.sql, filter.oldest_first ? "ASC" : "DESC"));
    condition.bind_to(rows);
    rows.bind(std::max(filter.limit, 0));
    std::vector<CatalogItem> items = all_rows(rows, read_item);
    add_tags_to(sql, items);
    return items;
  });
}

int64_t AssetCatalog::count(const CatalogFilter& filter) const {
  const Condition condition = condition_of(filter, false);
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare("SELECT count(*) FROM assets WHERE " + condition.sql);
    condition.bind_to(row);
    return row.step() ? row.integer(0) : 0;
  });
}

std::optional<CatalogItem> AssetCatalog::change(const std::string& id, const CatalogChange& change) {
  return database_.writing([&](SqlConnection& sql) -> std::optional<CatalogItem> {
    auto item = find_item(sql, id, sql.locking());
    if (!item) return std::nullopt;
    if (change.project && *change.project != item->asset.project) {
      if (has_equal(sql, item->asset, *change.project))
        throw Error(ErrorCode::Refused, "the other project already has this image");
      item->asset.project = *change.project;
      item->board.clear();  // boards belong to a project
    }
    if (change.name) item->name = *change.name;
    if (change.board) item->board = *change.board;
    if (change.starred) item->starred = *change.starred;
    apply_tags(*item, change);
    write_item(sql, *item);
    return item;
  });
}

bool AssetCatalog::trash(const std::string& id, int64_t now) {
  return database_.writing([&](SqlConnection& sql) {
    return sql.prepare("UPDATE assets SET deleted = ? WHERE id = ? AND deleted = 0").bind(now).bind(std::string_view(id)).run() >
           0;
  });
}

bool AssetCatalog::restore(const std::string& id) {
  return database_.writing([&](SqlConnection& sql) {
    return sql.prepare("UPDATE assets SET deleted = 0 WHERE id = ? AND deleted <> 0").bind(std::string_view(id)).run() > 0;
  });
}

std::vector<std::string> AssetCatalog::in_trash(int64_t before_ms, int limit) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare("SELECT id FROM assets WHERE deleted <> 0 AND deleted < ? ORDER BY deleted, id LIMIT ?");
    rows.bind(before_ms).bind(limit);
    return all_rows(rows, first_text);
  });
}

std::vector<AssetCatalog::TagCount> AssetCatalog::tags(const std::optional<std::string>& project) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows =
        sql.prepare(fmt::format("SELECT t.tag, count(*) FROM asset_tags t JOIN assets a ON a.id = t.asset WHERE a.deleted = 0 {} "
                                "GROUP BY t.tag ORDER BY t.tag LIMIT 1000",
                                project ? "AND a.project = ?" : ""));
    if (project) rows.bind(std::string_view(*project));
    return all_rows(rows, [](const SqlStatement& row) { return TagCount{row.text(0), row.integer(1)}; });
  });
}

int AssetCatalog::describe_old() {
  std::vector<std::pair<std::string, JobImage>> images = database_.reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(
        "SELECT i.job, i.idx, i.asset, i.seed FROM assets a JOIN job_images i ON i.asset = a.id "
        "WHERE a.seed < 0 AND a.kind = 'image'");
    std::vector<std::pair<std::string, JobImage>> found;
    while (rows.step())
      found.push_back(
          {rows.text(0),
           {.index = static_cast<int>(rows.integer(1)), .asset = rows.text(2), .seed = static_cast<uint64_t>(rows.integer(3))}});
    return found;
  });
  for (const auto& [id, image] : images)
    database_.writing([&, &job_id = id, &one = image](SqlConnection& sql) {
      if (const auto job = JobRows(sql, 0).find(job_id)) describe_image(sql, *job, one);
    });
  return static_cast<int>(images.size());
}

std::vector<std::string> AssetCatalog::parents(const std::string& id) const {
  return database_.reading([&](SqlConnection& sql) {
    std::vector<std::string> found;
    for (std::string at = id; found.size() < kMostRelatives;) {
      SqlStatement row = sql.prepare("SELECT p.id FROM assets a JOIN assets p ON p.id = a.parent WHERE a.id = ?");
      row.bind(std::string_view(at));
      if (!row.step()) break;
      at = row.text(0);
      if (at == id || std::find(found.begin(), found.end(), at) != found.end()) break;
      found.push_back(at);
    }
    return found;
  });
}

std::vector<std::string> AssetCatalog::children(const std::string& id) const {
  return database_.reading([&](SqlConnection& sql) {
    std::vector<std::string> found = {id};
    for (size_t i = 0; i < found.size() && found.size() < kMostRelatives; ++i) {
      SqlStatement rows = sql.prepare("SELECT id FROM assets WHERE parent = ? AND parent <> '' ORDER BY id LIMIT ?");
      rows.bind(std::string_view(found[i])).bind(static_cast<int64_t>(kMostRelatives - found.size()));
      while (rows.step())
        if (std::find(found.begin(), found.end(), rows.text(0)) == found.end()) found.push_back(rows.text(0));
    }
    found.erase(found.begin());
    return found;
  });
}

}  // namespace flux2
