#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/store/asset_store.h"
#include "server/store/job.h"

namespace flux2 {

// An asset with what people know and do about it.
struct CatalogItem {
  Asset asset;
  std::string name, prompt, model;
  std::string words;               // more that a search finds: the final prompt, if it is not the one that was sent
  std::vector<std::string> loras;  // names of adapters
  std::vector<std::string> tags;   // in alphabetical order
  std::string board;               // id; empty: none
  int64_t seed = -1;               // -1: not known
  bool starred = false;
  int64_t deleted = 0;  // when it was put into the trash; 0: it is not there
};

// Which assets a search finds. Empty texts and absent values do not narrow it.
struct CatalogFilter {
  std::optional<std::string> project;                    // "" is the default project
  std::string board, kind, tag, model, lora;             // kind "": all but temporary ones
  std::string words;                                     // each must occur in the name, the prompt, the final prompt or the tags
  std::optional<int64_t> seed, width, height, from, to;  // from and to: when it was stored, in milliseconds; `to` excluded
  std::optional<bool> starred;
  bool trash = false;  // those in the trash instead of the others
  bool oldest_first = false;
  std::string after;  // the last id of the page before
  int limit = 50;
};

// What to change; absent values stay.
struct CatalogChange {
  std::optional<std::string> name, board, project;
  std::optional<bool> starred;
  std::optional<std::vector<std::string>> tags;  // instead of the old ones
  std::vector<std::string> add_tags = {}, remove_tags = {};
};

// Searching and arranging images. Pages are found by the last id of the page before, so each costs the same, however many came
// before it. The tables are those of AssetStore, which brings them up to date. Every call is one transaction.
class AssetCatalog {
 public:
  explicit AssetCatalog(SqlDatabase& database) : database_(database) {}

  std::optional<CatalogItem> get(const std::string& id) const;
  std::vector<CatalogItem> search(const CatalogFilter& filter) const;
  int64_t count(const CatalogFilter& filter) const;  // all pages together

  // Returns the asset after the change; nothing if there is none. Throws Refused if it cannot move because the other project has
  // the same bytes already.
  std::optional<CatalogItem> change(const std::string& id, const CatalogChange& change);

  bool trash(const std::string& id, int64_t now);                         // false: not found, or already in the trash
  bool restore(const std::string& id);                                    // false: it is not in the trash
  std::vector<std::string> in_trash(int64_t before_ms, int limit) const;  // ids, those deleted first at the front

  struct TagCount {
    std::string tag;
    int64_t count = 0;
  };
  std::vector<TagCount> tags(const std::optional<std::string>& project) const;  // of assets that are not in the trash

  std::vector<std::string> parents(const std::string& id) const;   // nearest first
  std::vector<std::string> children(const std::string& id) const;  // made from it, and from those; breadth first

  // The images of finished jobs that were made before there was a catalog get their prompts. Returns how many.
  int describe_old();

 private:
  SqlDatabase& database_;
};

// Within a transaction: everything but the asset's own row.
void write_item(SqlConnection& sql, const CatalogItem& item);
// Within a transaction: notes what made an image. The first job that made it counts.
void describe_image(SqlConnection& sql, const Job& job, const JobImage& image);
// Within a transaction: the tags and other rows of an asset that is removed.
void forget_asset(SqlConnection& sql, const std::string& id);

// The tags of somebody who cannot be asked again, as an image may have them: line ends become spaces, long ones are cut, each is
// there once, and those over kMostTags are left out.
std::vector<std::string> usable_tags(const std::vector<std::string>& tags);

constexpr size_t kMostTags = 64, kLongestTag = 100, kLongestName = 200;

}  // namespace flux2
