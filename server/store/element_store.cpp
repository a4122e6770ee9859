#include "server/store/element_store.h"

#include <fmt/format.h>

#include "server/store/sql_rows.h"
#include "server/store/triggers.h"

namespace flux2 {

namespace {

constexpr const char* kElementColumns =
    "e.id, e.project, e.name, e.type, e.trigger_word, e.description, e.weight_note, e.loras, e.max_refs, e.created, e.updated";

Element read_element(const SqlStatement& row) {
  Element element;
  element.id = row.text(0);
  element.project = row.text(1);
  element.name = row.text(2);
  element.type = row.text(3);
  element.trigger = row.text(4);
  element.description = row.text(5);
  element.weight_note = row.text(6);
  element.loras = parse_json(row.text(7));
  element.max_refs = row.integer(8);
  element.created = row.integer(9);
  element.updated = row.integer(10);
  return element;
}

std::vector<std::string> images_of_element(SqlConnection& sql, const std::string& id) {
  SqlStatement rows = sql.prepare("SELECT asset FROM element_images WHERE element = ? ORDER BY position, asset");
  rows.bind(std::string_view(id));
  return all_rows(rows, first_text);
}

std::vector<Element> elements_where(SqlConnection& sql, const std::string& condition, const std::vector<std::string>& values) {
  SqlStatement rows = sql.prepare(fmt::format("SELECT {} FROM elements e WHERE {}", kElementColumns, condition));
  for (const std::string& value : values) rows.bind(std::string_view(value));
  std::vector<Element> elements = all_rows(rows, read_element);
  for (Element& element : elements) element.images = images_of_element(sql, element.id);
  return elements;
}

void write_images(SqlConnection& sql, const Element& element) {
  sql.prepare("DELETE FROM element_images WHERE element = ?").bind(std::string_view(element.id)).run();
  int64_t position = 0;
  for (const std::string& asset : element.images)
    sql.prepare("INSERT INTO element_images (element, asset, position) VALUES (?, ?, ?) ON CONFLICT (element, asset) DO NOTHING")
        .bind(std::string_view(element.id))
        .bind(std::string_view(asset))
        .bind(++position)
        .run();
}

[[noreturn]] void refuse_trigger(const Element& element) {
  fail(ErrorCode::Refused, "another element of this project has the trigger {}", element.trigger);
}

void touch_element(SqlConnection& sql, const std::string& id, int64_t now) {
  sql.prepare("UPDATE elements SET updated = ? WHERE id = ?").bind(now).bind(std::string_view(id)).run();
}

}  // namespace

void insert_element_row(SqlConnection& sql, const Element& element) {
  const int64_t added =
      sql.prepare(
             "INSERT INTO elements (id, project, name, type, trigger_word, trigger_fold, description, weight_note, loras, "
             "max_refs, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (project, trigger_fold) DO "
             "NOTHING")
          .bind(std::string_view(element.id))
          .bind(std::string_view(element.project))
          .bind(std::string_view(element.name))
          .bind(std::string_view(element.type))
          .bind(std::string_view(element.trigger))
          .bind(folded_trigger(element.trigger))
          .bind(std::string_view(element.description))
          .bind(std::string_view(element.weight_note))
          .bind(element.loras.dump())
          .bind(element.max_refs)
          .bind(element.created)
          .bind(element.updated)
          .run();
  if (added == 0) refuse_trigger(element);
  write_images(sql, element);
}

void ElementStore::insert(const Element& element) {
  database_.writing([&](SqlConnection& sql) { insert_element_row(sql, element); });
}

void ElementStore::save(const Element& element) {
  database_.writing([&](SqlConnection& sql) {
    SqlStatement other = sql.prepare("SELECT id FROM elements WHERE project = ? AND trigger_fold = ? AND id <> ?");
    other.bind(std::string_view(element.project)).bind(folded_trigger(element.trigger)).bind(std::string_view(element.id));
    if (other.step()) refuse_trigger(element);
    sql.prepare(
           "UPDATE elements SET name = ?, type = ?, trigger_word = ?, trigger_fold = ?, description = ?, weight_note = ?, loras "
           "= ?, max_refs = ?, updated = ? WHERE id = ?")
        .bind(std::string_view(element.name))
        .bind(std::string_view(element.type))
        .bind(std::string_view(element.trigger))
        .bind(folded_trigger(element.trigger))
        .bind(std::string_view(element.description))
        .bind(std::string_view(element.weight_note))
        .bind(element.loras.dump())
        .bind(element.max_refs)
        .bind(element.updated)
        .bind(std::string_view(element.id))
        .run();
    write_images(sql, element);
  });
}

bool ElementStore::remove(const std::string& id) {
  return database_.writing([&](SqlConnection& sql) {
    sql.prepare("DELETE FROM element_images WHERE element = ?").bind(std::string_view(id)).run();
    return sql.prepare("DELETE FROM elements WHERE id = ?").bind(std::string_view(id)).run() > 0;
  });
}

std::optional<Element> ElementStore::get(const std::string& id) const {
  return database_.reading([&](SqlConnection& sql) -> std::optional<Element> {
    auto found = elements_where(sql, "e.id = ?", {id});
    return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
  });
}

std::vector<Element> ElementStore::list(const std::string& project, bool with_shared) const {
  return database_.reading([&](SqlConnection& sql) {
    return elements_where(
        sql, fmt::format("{} ORDER BY e.project DESC, e.name, e.id", with_shared ? "e.project IN (?, '')" : "e.project = ?"),
        {project});
  });
}

int64_t ElementStore::count(const std::string& project) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare("SELECT count(*) FROM elements WHERE project = ?");
    return row.bind(std::string_view(project)).step() ? row.integer(0) : 0;
  });
}

std::vector<Element> ElementStore::with_triggers(const std::vector<std::string>& folds) const {
  if (folds.empty()) return {};
  std::string places;
  for (size_t i = 0; i < folds.size(); ++i) places += i == 0 ? "?" : ", ?";
  return database_.reading([&](SqlConnection& sql) {
    return elements_where(sql,
                          fmt::format("e.trigger_fold IN ({}) AND EXISTS (SELECT 1 FROM projects p WHERE p.id = e.project AND "
                                      "p.deleted = 0) ORDER BY e.id",
                                      places),
                          folds);
  });
}

bool ElementStore::add_image(const std::string& id, const std::string& asset, int64_t now) {
  return database_.writing([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare(fmt::format("SELECT id FROM elements WHERE id = ? {}", sql.locking()));
    if (!row.bind(std::string_view(id)).step()) return false;
    add_element_image(sql, id, asset, now);
    return true;
  });
}

bool ElementStore::remove_image(const std::string& id, const std::string& asset, int64_t now) {
  return database_.writing([&](SqlConnection& sql) {
    touch_element(sql, id, now);
    return sql.prepare("DELETE FROM element_images WHERE element = ? AND asset = ?")
               .bind(std::string_view(id))
               .bind(std::string_view(asset))
               .run() > 0;
  });
}

std::vector<std::string> ElementStore::names_using(const std::string& asset) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(
        "SELECT e.name FROM element_images i JOIN elements e ON e.id = i.element WHERE i.asset = ? ORDER BY e.name LIMIT 10");
    rows.bind(std::string_view(asset));
    return all_rows(rows, first_text);
  });
}

void add_element_image(SqlConnection& sql, const std::string& id, const std::string& asset, int64_t now) {
  sql.prepare(
         "INSERT INTO element_images (element, asset, position) SELECT e.id, ?, (SELECT coalesce(max(position), 0) + 1 FROM "
         "element_images WHERE element = e.id) FROM elements e WHERE e.id = ? AND (SELECT count(*) FROM element_images WHERE "
         "element = e.id) < ? ON CONFLICT (element, asset) DO NOTHING")
      .bind(std::string_view(asset))
      .bind(std::string_view(id))
      .bind(static_cast<int64_t>(kMostElementImages))
      .run();
  touch_element(sql, id, now);
}

}  // namespace flux2
