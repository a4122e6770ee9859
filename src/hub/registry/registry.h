#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/registry/model_record.h"

namespace flux2 {

// Whether this build keeps a registry at all; without SQLite it does not, and opening one says so.
bool registry_available();

// What the user has installed or registered: flux2.db in the data folder. Several processes may use it at once; each
// call is one transaction. Damage is an Error that says what to do, and the file stays as it is.
class Registry {
 public:
  explicit Registry(std::filesystem::path data_folder);  // made when missing

  // For looking only: nothing when there is no registry yet, or this build cannot read one.
  static std::optional<Registry> existing(const std::filesystem::path& data_folder);

  Registry(Registry&&) noexcept;
  Registry& operator=(Registry&&) noexcept;
  ~Registry();

  std::vector<ModelRecord> all() const;                         // by type, then name
  std::optional<ModelRecord> find(std::string_view key) const;  // by key or by name, whatever its case

  // Adds it with a key and a name of its own, or brings the record of the same type and path up to date: what was found
  // in the file changes, while key, name, description, triggers, cover, defaults, components and the source that is
  // known stay the user's. Returns what is stored now.
  ModelRecord add(ModelRecord record);

  // Stores every field of a record that exists, files included. Throws NotFound for an unknown key, InvalidArgument when
  // the name is taken or no name.
  void update(const ModelRecord& record);

  bool remove(std::string_view key);  // by key; false when there is none

  // The hash of a file as it was computed last, unless its size or time of change are different now.
  std::optional<std::string> known_hash(const std::filesystem::path& file) const;
  void remember_hash(const std::filesystem::path& file, const std::string& sha256);

  const std::filesystem::path& data_folder() const;

 private:
  struct Store;
  explicit Registry(std::unique_ptr<Store> store);

  std::unique_ptr<Store> store_;
};

}  // namespace flux2
