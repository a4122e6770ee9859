#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/store/sql.h"

namespace flux2 {

// A part of a story, and a single view of it.
struct StoryScene {
  std::string id, project, name, text;
  int64_t position = 0;
};
struct Shot {
  std::string id, project, scene;  // scene: empty if it belongs to none
  // action, prompt, negative, dialogue, character, shot_type, seed, width, height, num_frames, steps, guidance
  Json fields = Json::object();
  Json matched = Json::array();     // elements that were found in it: [{"element", "score", "source"}]
  std::string last_job, thumbnail;  // a job and an asset
  int64_t position = 0, created = 0;
};

// The tables are those of AssetStore. Every call is one transaction.
class ShotStore {
 public:
  explicit ShotStore(SqlDatabase& database) : database_(database) {}

  void insert_scene(const StoryScene& scene);  // at the end
  std::optional<StoryScene> scene(const std::string& id) const;
  std::vector<StoryScene> scenes(const std::string& project) const;
  void save_scene(const StoryScene& scene);
  bool remove_scene(const std::string& id);  // its shots stay

  void insert(const Shot& shot);  // at the end
  std::optional<Shot> get(const std::string& id) const;
  std::vector<Shot> list(const std::string& project) const;  // in the order of the scenes, then in their own
  int64_t count(const std::string& project) const;           // shots and scenes
  void save(const Shot& shot);                               // scene, fields, matched, position
  void set_last_job(const std::string& id, const std::string& job);
  void set_matched(const std::string& id, const Json& matched);  // what others change meanwhile stays
  bool remove(const std::string& id);

 private:
  SqlDatabase& database_;
};

// Within a transaction. A position of 0 means: at the end.
void insert_scene_row(SqlConnection& sql, const StoryScene& scene);
void insert_shot_row(SqlConnection& sql, const Shot& shot);

constexpr int64_t kMostShots = 10'000;  // of a project, with its scenes

}  // namespace flux2
