#include "server/store/shot_store.h"

#include <fmt/format.h>

#include "server/store/sql_rows.h"

namespace flux2 {

namespace {

constexpr const char* kSceneColumns = "id, project, position, name, text";
constexpr const char* kShotColumns =
    "t.id, t.project, t.scene, t.position, t.fields, t.matched, t.last_job, t.thumbnail, t.created";

StoryScene read_scene(const SqlStatement& row) {
  return {.id = row.text(0), .project = row.text(1), .name = row.text(3), .text = row.text(4), .position = row.integer(2)};
}

Shot read_shot(const SqlStatement& row) {
  return {.id = row.text(0),
          .project = row.text(1),
          .scene = row.text(2),
          .fields = parse_json(row.text(4)),
          .matched = parse_json(row.text(5)),
          .last_job = row.text(6),
          .thumbnail = row.text(7),
          .position = row.integer(3),
          .created = row.integer(8)};
}

int64_t last_position(SqlConnection& sql, const char* table, const std::string& project) {
  SqlStatement row = sql.prepare(fmt::format("SELECT coalesce(max(position), 0) FROM {} WHERE project = ?", table));
  return row.bind(std::string_view(project)).step() ? row.integer(0) : 0;
}

}  // namespace

void insert_scene_row(SqlConnection& sql, const StoryScene& scene) {
  sql.prepare("INSERT INTO scenes (id, project, position, name, text) VALUES (?, ?, ?, ?, ?)")
      .bind(std::string_view(scene.id))
      .bind(std::string_view(scene.project))
      .bind(scene.position != 0 ? scene.position : last_position(sql, "scenes", scene.project) + 1)
      .bind(std::string_view(scene.name))
      .bind(std::string_view(scene.text))
      .run();
}

void insert_shot_row(SqlConnection& sql, const Shot& shot) {
  sql.prepare(
         "INSERT INTO shots (id, project, scene, position, fields, matched, last_job, thumbnail, created) VALUES (?, ?, ?, ?, ?, "
         "?, ?, ?, ?)")
      .bind(std::string_view(shot.id))
      .bind(std::string_view(shot.project))
      .bind(std::string_view(shot.scene))
      .bind(shot.position != 0 ? shot.position : last_position(sql, "shots", shot.project) + 1)
      .bind(shot.fields.dump())
      .bind(shot.matched.dump())
      .bind(std::string_view(shot.last_job))
      .bind(std::string_view(shot.thumbnail))
      .bind(shot.created)
      .run();
}

void ShotStore::insert_scene(const StoryScene& scene) {
  database_.writing([&](SqlConnection& sql) { insert_scene_row(sql, scene); });
}

std::optional<StoryScene> ShotStore::scene(const std::string& id) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare(fmt::format("SELECT {} FROM scenes WHERE id = ?", kSceneColumns));
    row.bind(std::string_view(id));
    return first_row(row, read_scene);
  });
}

std::vector<StoryScene> ShotStore::scenes(const std::string& project) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(fmt::format("SELECT {} FROM scenes WHERE project = ? ORDER BY position, id", kSceneColumns));
    rows.bind(std::string_view(project));
    return all_rows(rows, read_scene);
  });
}

void ShotStore::save_scene(const StoryScene& scene) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE scenes SET name = ?, text = ?, position = ? WHERE id = ?")
        .bind(std::string_view(scene.name))
        .bind(std::string_view(scene.text))
        .bind(scene.position)
        .bind(std::string_view(scene.id))
        .run();
  });
}

bool ShotStore::remove_scene(const std::string& id) {
  return database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE shots SET scene = '' WHERE scene = ?").bind(std::string_view(id)).run();
    return sql.prepare("DELETE FROM scenes WHERE id = ?").bind(std::string_view(id)).run() > 0;
  });
}

void ShotStore::insert(const Shot& shot) {
  database_.writing([&](SqlConnection& sql) { insert_shot_row(sql, shot); });
}

std::optional<Shot> ShotStore::get(const std::string& id) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare(fmt::format("SELECT {} FROM shots t WHERE t.id = ?", kShotColumns));
    row.bind(std::string_view(id));
    return first_row(row, read_shot);
  });
}

std::vector<Shot> ShotStore::list(const std::string& project) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows =
        sql.prepare(fmt::format("SELECT {} FROM shots t LEFT JOIN scenes s ON s.id = t.scene WHERE t.project = ? ORDER BY "
                                "coalesce(s.position, 0), t.scene, t.position, t.id",
                                kShotColumns));
    rows.bind(std::string_view(project));
    return all_rows(rows, read_shot);
  });
}

int64_t ShotStore::count(const std::string& project) const {
  return database_.reading([&](SqlConnection& sql) {
    int64_t total = 0;
    for (const char* table : {"shots", "scenes"}) {
      SqlStatement row = sql.prepare(fmt::format("SELECT count(*) FROM {} WHERE project = ?", table));
      if (row.bind(std::string_view(project)).step()) total += row.integer(0);
    }
    return total;
  });
}

void ShotStore::save(const Shot& shot) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE shots SET scene = ?, fields = ?, matched = ?, position = ? WHERE id = ?")
        .bind(std::string_view(shot.scene))
        .bind(shot.fields.dump())
        .bind(shot.matched.dump())
        .bind(shot.position)
        .bind(std::string_view(shot.id))
        .run();
  });
}

void ShotStore::set_last_job(const std::string& id, const std::string& job) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE shots SET last_job = ? WHERE id = ?").bind(std::string_view(job)).bind(std::string_view(id)).run();
  });
}

void ShotStore::set_matched(const std::string& id, const Json& matched) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE shots SET matched = ? WHERE id = ?").bind(matched.dump()).bind(std::string_view(id)).run();
  });
}

bool ShotStore::remove(const std::string& id) {
  return database_.writing(
      [&](SqlConnection& sql) { return sql.prepare("DELETE FROM shots WHERE id = ?").bind(std::string_view(id)).run() > 0; });
}

}  // namespace flux2
