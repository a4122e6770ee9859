#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/registry/model_record.h"

namespace flux2 {

// Whether this build has a registry. Without SQLite it has none, and opening one throws an error.
bool registry_available();

// What the user has installed or registered: flux2.db in the data folder. Several processes may use it at once; each call is one
// transaction. If it is damaged, an Error says what to do, and the file is not changed.
class Registry {
 public:
  explicit Registry(std::filesystem::path data_folder);  // made when missing

  // For reading only. Empty if there is no registry yet, or if this build cannot read one.
  static std::optional<Registry> existing(const std::filesystem::path& data_folder);

  Registry(Registry&&) noexcept;
  Registry& operator=(Registry&&) noexcept;
  ~Registry();

  std::vector<ModelRecord> all() const;                         // by type, then name
  std::optional<ModelRecord> find(std::string_view key) const;  // by key or by name, whatever its case

  // The key of the record that has this key or name, even if the record itself cannot be read.
  std::optional<std::string> key_of(std::string_view key) const;

  // Adds a record with a new key and a unique name, or updates the record with the same type and path: what was found in the file
  // is updated, while key, name, description, triggers, cover, defaults, components and a known source are kept. Of a source
  // that is the same, the revision is updated. Returns the stored record.
  ModelRecord add(ModelRecord record);

  // Stores every field of a record that exists, files included, but not what it is related to. Throws NotFound for an unknown
  // key, InvalidArgument when the name is taken or no name, or when another record of the type has the path.
  void update(const ModelRecord& record);

  bool remove(std::string_view key);  // by key, with its links to others; false when there is none

  // Links two records, in both directions, or removes the link. False if nothing changed. relate() throws NotFound for an unknown
  // key and InvalidArgument for a record and itself.
  bool relate(std::string_view key, std::string_view other);
  bool unrelate(std::string_view key, std::string_view other);

  // The last computed hash of a file, unless its size or modification time has changed.
  std::optional<std::string> known_hash(const std::filesystem::path& file) const;
  void remember_hash(const std::filesystem::path& file, const std::string& sha256);

  const std::filesystem::path& data_folder() const;

 private:
  struct Store;
  explicit Registry(std::unique_ptr<Store> store);

  std::unique_ptr<Store> store_;
};

}  // namespace flux2
