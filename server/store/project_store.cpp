#include "server/store/project_store.h"

#include <fmt/format.h>

#include "server/store/job_rows.h"
#include "server/store/sql_rows.h"

namespace flux2 {

namespace {

constexpr const char* kProjectColumns = "p.id, p.name, p.settings, p.created, p.updated, p.deleted";
// A subquery for each project: the index by project answers it, and SQLite would sort all images for GROUP BY.
constexpr const char* kImagesOfProject =
    "(SELECT count(*) FROM assets a WHERE a.project = p.id AND a.deleted = 0 AND a.kind IN ('image', 'sheet'))";
constexpr const char* kBoardColumns = "b.id, b.project, b.name, b.cover, b.position";
constexpr const char* kImagesOfBoard = "(SELECT count(*) FROM assets a WHERE a.board = b.id AND a.board <> '' AND a.deleted = 0)";

Project read_project(const SqlStatement& row) {
  Project project;
  project.id = row.text(0);
  project.name = row.text(1);
  project.settings = parse_json(row.text(2));
  project.created = row.integer(3);
  project.updated = row.integer(4);
  project.deleted = row.integer(5);
  project.images = row.integer(6);
  return project;
}

Board read_board(const SqlStatement& row) {
  return {.id = row.text(0),
          .project = row.text(1),
          .name = row.text(2),
          .cover = row.text(3),
          .position = row.integer(4),
          .images = row.integer(5)};
}

std::string settings_text(const Json& settings) { return settings.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

void insert_project_row(SqlConnection& sql, const Project& project) {
  sql.prepare("INSERT INTO projects (id, name, settings, created, updated, deleted) VALUES (?, ?, ?, ?, ?, 0)")
      .bind(std::string_view(project.id))
      .bind(std::string_view(project.name))
      .bind(settings_text(project.settings))
      .bind(project.created)
      .bind(project.updated)
      .run();
}

void insert_board_row(SqlConnection& sql, const Board& board) {
  int64_t position = board.position;
  if (position == 0) {
    SqlStatement last = sql.prepare("SELECT coalesce(max(position), 0) FROM boards WHERE project = ?");
    position = (last.bind(std::string_view(board.project)).step() ? last.integer(0) : 0) + 1;
  }
  sql.prepare("INSERT INTO boards (id, project, name, cover, position) VALUES (?, ?, ?, ?, ?)")
      .bind(std::string_view(board.id))
      .bind(std::string_view(board.project))
      .bind(std::string_view(board.name))
      .bind(std::string_view(board.cover))
      .bind(position)
      .run();
}

void ProjectStore::insert(const Project& project) {
  database_.writing([&](SqlConnection& sql) { insert_project_row(sql, project); });
}

std::optional<Project> ProjectStore::get(const std::string& id) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement row =
        sql.prepare(fmt::format("SELECT {}, {} FROM projects p WHERE p.id = ?", kProjectColumns, kImagesOfProject));
    row.bind(std::string_view(id));
    return first_row(row, read_project);
  });
}

std::vector<Project> ProjectStore::list(bool trash) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(
        fmt::format("SELECT {}, {} FROM projects p WHERE p.deleted {} 0 ORDER BY p.id = '' DESC, p.id DESC LIMIT 1000",
                    kProjectColumns, kImagesOfProject, trash ? "<>" : "="));
    return all_rows(rows, read_project);
  });
}

void ProjectStore::save(const Project& project) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE projects SET name = ?, settings = ?, updated = ? WHERE id = ?")
        .bind(std::string_view(project.name))
        .bind(settings_text(project.settings))
        .bind(project.updated)
        .bind(std::string_view(project.id))
        .run();
  });
}

bool ProjectStore::trash(const std::string& id, Images images, int64_t now) {
  if (id.empty()) return false;
  return database_.writing([&](SqlConnection& sql) {
    if (sql.prepare("UPDATE projects SET deleted = ? WHERE id = ? AND deleted = 0").bind(now).bind(std::string_view(id)).run() ==
        0)
      return false;
    if (images == Images::Keep) {
      // What the default project has already stays there; it must not be in the trash.
      sql.prepare(
             "UPDATE assets SET deleted = 0 WHERE project = '' AND deleted <> 0 AND EXISTS (SELECT 1 FROM assets o WHERE "
             "o.project = ? AND o.deleted = 0 AND o.sha256 = assets.sha256 AND o.kind = assets.kind)")
          .bind(std::string_view(id))
          .run();
      sql.prepare(
             "UPDATE assets SET project = '', board = '' WHERE project = ? AND NOT EXISTS (SELECT 1 FROM assets o WHERE "
             "o.project = '' AND o.sha256 = assets.sha256 AND o.kind = assets.kind)")
          .bind(std::string_view(id))
          .run();
    }
    sql.prepare("UPDATE assets SET deleted = ? WHERE project = ? AND deleted = 0").bind(now).bind(std::string_view(id)).run();
    return true;
  });
}

bool ProjectStore::restore(const std::string& id) {
  return database_.writing([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare(fmt::format("SELECT deleted FROM projects WHERE id = ? {}", sql.locking()));
    row.bind(std::string_view(id));
    const int64_t deleted = row.step() ? row.integer(0) : 0;
    if (deleted == 0) return false;
    sql.prepare("UPDATE projects SET deleted = 0 WHERE id = ?").bind(std::string_view(id)).run();
    sql.prepare("UPDATE assets SET deleted = 0 WHERE project = ? AND deleted = ?").bind(std::string_view(id)).bind(deleted).run();
    return true;
  });
}

int ProjectStore::remove_trashed(int64_t before_ms) {
  return database_.writing([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(fmt::format(
        "SELECT id FROM projects WHERE deleted <> 0 AND deleted < ? AND NOT EXISTS (SELECT 1 FROM assets a WHERE a.project = "
        "projects.id) AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.project = projects.id AND NOT ({})) {}",
        kFinal, sql.locking()));
    rows.bind(before_ms);
    const std::vector<std::string> ids = all_rows(rows, first_text);
    for (const std::string& id : ids)
      for (const char* statement : {"DELETE FROM element_images WHERE element IN (SELECT id FROM elements WHERE project = ?)",
                                    "DELETE FROM elements WHERE project = ?", "DELETE FROM shots WHERE project = ?",
                                    "DELETE FROM scenes WHERE project = ?", "DELETE FROM boards WHERE project = ?",
                                    "DELETE FROM job_images WHERE job IN (SELECT id FROM jobs WHERE project = ?)",
                                    "DELETE FROM jobs WHERE project = ?", "DELETE FROM projects WHERE id = ?"})
        sql.prepare(statement).bind(std::string_view(id)).run();
    return static_cast<int>(ids.size());
  });
}

void ProjectStore::insert_board(const Board& board) {
  database_.writing([&](SqlConnection& sql) { insert_board_row(sql, board); });
}

std::optional<Board> ProjectStore::board(const std::string& id) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare(fmt::format("SELECT {}, {} FROM boards b WHERE b.id = ?", kBoardColumns, kImagesOfBoard));
    row.bind(std::string_view(id));
    return first_row(row, read_board);
  });
}

std::vector<Board> ProjectStore::boards(const std::string& project) const {
  return database_.reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(fmt::format(
        "SELECT {}, {} FROM boards b WHERE b.project = ? ORDER BY b.position, b.id LIMIT 1000", kBoardColumns, kImagesOfBoard));
    rows.bind(std::string_view(project));
    return all_rows(rows, read_board);
  });
}

void ProjectStore::save_board(const Board& board) {
  database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE boards SET name = ?, cover = ?, position = ? WHERE id = ?")
        .bind(std::string_view(board.name))
        .bind(std::string_view(board.cover))
        .bind(board.position)
        .bind(std::string_view(board.id))
        .run();
  });
}

bool ProjectStore::remove_board(const std::string& board) {
  return database_.writing([&](SqlConnection& sql) {
    sql.prepare("UPDATE assets SET board = '' WHERE board = ? AND board <> ''").bind(std::string_view(board)).run();
    return sql.prepare("DELETE FROM boards WHERE id = ?").bind(std::string_view(board)).run() > 0;
  });
}

}  // namespace flux2
