#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/store/sql.h"

namespace flux2 {

// A series of images that belong together. The default project has the id "" and always exists.
struct Project {
  std::string id, name;
  Json settings = Json::object();  // what its jobs leave out: width, height, seed, model, style_prompt, negative; and notes
  int64_t created = 0, updated = 0;
  int64_t deleted = 0;  // when it was put into the trash
  int64_t images = 0;   // generated ones that are not in the trash; get() and list() count them
};

// A group of images within a project.
struct Board {
  std::string id, project, name, cover;  // cover: id of an asset, or empty
  int64_t position = 0, images = 0;
};

// The tables are those of AssetStore. Every call is one transaction.
class ProjectStore {
 public:
  explicit ProjectStore(SqlDatabase& database) : database_(database) {}

  void insert(const Project& project);
  std::optional<Project> get(const std::string& id) const;
  std::vector<Project> list(bool trash = false) const;  // the default project first, then the newest
  void save(const Project& project);                    // name, settings, updated

  enum class Images { Trash, Keep };
  // Into the trash, with its images or, with Keep, after they have moved to the default project. Images that the default project
  // has already go into the trash. False: not found, or in the trash.
  bool trash(const std::string& id, Images images, int64_t now);
  bool restore(const std::string& id);  // with the images that went into the trash together with it
  // Removes projects that have been in the trash since before that time and have no images any more, with their boards and
  // finished jobs. Returns their number.
  int remove_trashed(int64_t before_ms);

  void insert_board(const Board& board);  // at the end
  std::optional<Board> board(const std::string& id) const;
  std::vector<Board> boards(const std::string& project) const;
  void save_board(const Board& board);          // name, cover, position
  bool remove_board(const std::string& board);  // its images stay

 private:
  SqlDatabase& database_;
};

// Within a transaction. A position of 0 means: at the end.
void insert_project_row(SqlConnection& sql, const Project& project);
void insert_board_row(SqlConnection& sql, const Board& board);

}  // namespace flux2
