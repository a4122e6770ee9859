#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/store/sql.h"

namespace flux2 {

// A named thing that should look the same in every image. Those of the default project are shared by all projects.
struct Element {
  std::string id, project, name;
  std::string type;  // character, location, object or style
  std::string trigger, description, weight_note;
  Json loras = Json::array();            // adapters that its jobs get: [{"name", "weight"}]
  int64_t max_refs = 1;                  // how many of its images a job gets
  std::vector<std::string> images = {};  // assets, the main one first
  int64_t created = 0, updated = 0;
};

// The tables are those of AssetStore. Every call is one transaction.
class ElementStore {
 public:
  explicit ElementStore(SqlDatabase& database) : database_(database) {}

  // Both throw Refused if another element of the project has this trigger. save() changes everything but the project.
  void insert(const Element& element);
  void save(const Element& element);
  bool remove(const std::string& id);

  std::optional<Element> get(const std::string& id) const;
  std::vector<Element> list(const std::string& project, bool with_shared) const;  // its own first, each in the order of names
  int64_t count(const std::string& project) const;
  // Of all projects that are not in the trash.
  std::vector<Element> with_triggers(const std::vector<std::string>& folds) const;

  // Appends the image, unless the element has it already or is full (kMostElementImages). False if the element does not exist.
  bool add_image(const std::string& id, const std::string& asset, int64_t now);
  bool remove_image(const std::string& id, const std::string& asset, int64_t now);  // false: it has no such image
  std::vector<std::string> names_using(const std::string& asset) const;

 private:
  SqlDatabase& database_;
};

// Within a transaction.
void insert_element_row(SqlConnection& sql, const Element& element);  // throws Refused as insert() does
void add_element_image(SqlConnection& sql, const std::string& id, const std::string& asset, int64_t now);

constexpr size_t kMostElementImages = 64;
constexpr int64_t kMostElements = 1000;  // of a project

}  // namespace flux2
