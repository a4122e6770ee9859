#include "hub/registry/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/path_exists.h"
#include "base/sha256.h"
#include "hub/registry/database.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kArea = "models";
constexpr const char* kSteps[] = {
    "CREATE TABLE models ("
    " key TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE COLLATE NOCASE, type TEXT NOT NULL, family TEXT NOT NULL,"
    " variant TEXT NOT NULL, format TEXT NOT NULL, quant TEXT NOT NULL, path TEXT NOT NULL, in_place INTEGER NOT NULL,"
    " source_kind TEXT NOT NULL, source_ref TEXT NOT NULL, source_revision TEXT NOT NULL, sha256 TEXT NOT NULL,"
    " bytes INTEGER NOT NULL, license TEXT NOT NULL, gated INTEGER NOT NULL, triggers TEXT NOT NULL,"
    " description TEXT NOT NULL, cover_asset TEXT NOT NULL, defaults TEXT NOT NULL, components TEXT NOT NULL,"
    " probe TEXT NOT NULL, installed_at INTEGER NOT NULL, state TEXT NOT NULL, note TEXT NOT NULL);"
    "CREATE UNIQUE INDEX models_by_path ON models (type, path);"
    "CREATE TABLE model_files ("
    " model TEXT NOT NULL REFERENCES models (key) ON DELETE CASCADE, path TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " sha256 TEXT NOT NULL, PRIMARY KEY (model, path));",
    "CREATE TABLE file_hashes ("
    " path TEXT PRIMARY KEY, bytes INTEGER NOT NULL, changed INTEGER NOT NULL, sha256 TEXT NOT NULL);",
    // Each pair once, the smaller key first. No reference to models: a record that is changed is written again.
    "CREATE TABLE model_relations (model TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (model, other));"
    "CREATE INDEX model_relations_by_other ON model_relations (other);",
};
constexpr const char* kColumns =
    "key, name, type, family, variant, format, quant, path, in_place, source_kind, source_ref, source_revision, sha256,"
    " bytes, license, gated, triggers, description, cover_asset, defaults, components, probe, installed_at, state, note";
constexpr const char* kByKeyOrName = "key = ? OR name = ? ORDER BY key = ? DESC LIMIT 1";

fs::path full_path(const fs::path& path) { return fs::absolute(path).lexically_normal(); }

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

struct FileStamp {
  int64_t bytes = 0, changed = 0;
};

std::optional<FileStamp> stamp_of(const fs::path& file) {
  std::error_code failure;
  const auto bytes = fs::file_size(file, failure);
  if (failure) return std::nullopt;
  const auto changed = fs::last_write_time(file, failure);
  if (failure) return std::nullopt;
  return FileStamp{static_cast<int64_t>(bytes), static_cast<int64_t>(changed.time_since_epoch().count())};
}

}  // namespace

struct Registry::Store {
  fs::path folder;
  Database database;
  fs::path real_folder = real_place(folder);

  // ---- paths: those in the data folder are kept relative to it ----

  // A scan resolves links, so a data folder that is reached through a link has two names.
  std::string kept(const fs::path& path) const {
    const fs::path full = full_path(path);
    for (const fs::path* top : {&folder, &real_folder}) {
      const fs::path relative = full.lexically_relative(*top);
      if (!relative.empty() && *relative.begin() != ".." && relative != ".") return relative.string();
    }
    return full.string();
  }
  fs::path full(const std::string& path) const { return (folder / path).lexically_normal(); }

  // ---- models that older versions registered twice ----

  // If the data folder is reached through a link, its files have two names. Older versions registered a model under both; the
  // index of the table takes them for two. From the key of each older record to that of the newest, which counts.
  using Repeated = std::map<std::string, std::string>;
  struct Misplaced {
    std::string key, path;  // the path as it is kept now
  };

  // Fills in `misplaced`: records whose path is not written as it is kept now.
  Repeated repeated(std::vector<Misplaced>* misplaced = nullptr) const {
    using Entry = std::tuple<int64_t, int64_t, std::string>;                   // when it was installed, its row, its key
    std::map<std::pair<std::string, std::string>, std::vector<Entry>> places;  // by type and path
    Statement rows = database.prepare("SELECT installed_at, rowid, key, type, path FROM models WHERE path LIKE '/%'");
    while (rows.step())
      if (std::string path = kept(full(rows.text(4))); path != rows.text(4))
        places[{rows.text(3), std::move(path)}].emplace_back(rows.integer(0), rows.integer(1), rows.text(2));
    Repeated older;
    for (auto& [place, entries] : places) {
      Statement right = database.prepare("SELECT installed_at, rowid, key FROM models WHERE type = ? AND path = ?");
      right.bind(place.first).bind(place.second);
      while (right.step()) entries.emplace_back(right.integer(0), right.integer(1), right.text(2));
      std::sort(entries.begin(), entries.end());
      const std::string& newest = std::get<2>(entries.back());
      for (size_t i = 0; i + 1 < entries.size(); ++i) older[std::get<2>(entries[i])] = newest;
      if (misplaced) misplaced->push_back({newest, place.second});
    }
    return older;
  }

  // References to the older record lead to the newest.
  static void renew_keys(ModelRecord& r, const Repeated& older) {
    for (std::string* key : {&r.components.vae, &r.components.text_encoder, &r.components.tokenizer})
      if (const auto found = older.find(*key); found != older.end()) *key = found->second;
    for (std::string& key : r.related)
      if (const auto found = older.find(key); found != older.end()) key = found->second;
    std::sort(r.related.begin(), r.related.end());
    r.related.erase(std::unique(r.related.begin(), r.related.end()), r.related.end());
    std::erase(r.related, r.key);
  }

  // Stores what reading makes of them. Part of every transaction that writes.
  void tidy() const {
    std::vector<Misplaced> misplaced;
    const Repeated older = repeated(&misplaced);
    for (const auto& [key, newest] : older) {
      erase(key);
      for (const auto& [mine, others] : {std::pair("model", "other"), std::pair("other", "model")})
        database
            .prepare(fmt::format("INSERT OR IGNORE INTO model_relations SELECT min(?1, {1}), max(?1, {1}) FROM model_relations"
                                 " WHERE {0} = ?2 AND {1} <> ?1",
                                 mine, others))
            .bind(newest)
            .bind(key)
            .run();
      database.prepare("DELETE FROM model_relations WHERE model = ? OR other = ?").bind(key).bind(key).run();
      database.prepare("UPDATE models SET components = replace(components, ?, ?)").bind(key).bind(newest).run();
    }
    for (const Misplaced& m : misplaced) {
      database.prepare("UPDATE models SET path = ? WHERE key = ?").bind(m.path).bind(m.key).run();
      std::vector<std::string> files;
      Statement rows = database.prepare("SELECT path FROM model_files WHERE model = ?");
      rows.bind(m.key);
      while (rows.step()) files.push_back(rows.text(0));
      for (const std::string& file : files)
        database.prepare("UPDATE OR REPLACE model_files SET path = ? WHERE model = ? AND path = ?")
            .bind(kept(full(file)))
            .bind(m.key)
            .bind(file)
            .run();
    }
  }

  // ---- rows ----

  std::vector<ModelRecord> all(const Repeated& older) const {
    std::vector<ModelRecord> records;
    Statement rows = database.prepare(
        fmt::format("SELECT {} FROM models ORDER BY CASE type WHEN 'main' THEN 0 WHEN 'vae' THEN 1 WHEN 'text_encoder' THEN 2"
                    " WHEN 'tokenizer' THEN 3 ELSE 4 END, type, name COLLATE NOCASE",
                    kColumns));
    while (rows.step())
      if (!older.contains(rows.text(0))) renew_keys(records.emplace_back(read(rows)), older);
    return records;
  }

  ModelRecord read(const Statement& row) const {
    int at = 0;
    const auto text = [&] { return row.text(at++); };
    const auto number = [&] { return row.integer(at++); };
    ModelRecord r;
    r.key = text();
    r.name = text();
    const auto broken = [&](const char* what) {
      throw Error(ErrorCode::BadFile, fmt::format("{}: the record {} has {}", database.path().string(), r.key, what),
                  Hint("remove it with {0}; the model's files are kept", {run_command("models remove " + r.key)}));
    };
    const auto parsed = [&](const char* what) {
      try {
        return parse_json(text());
      } catch (const Error&) {
        broken(what);
      }
      return Json();
    };
    if (const auto type = model_type_named(text())) r.type = *type;
    else broken("an unknown type");
    r.family = text(), r.variant = text(), r.format = text(), r.quant = text();
    r.path = full(text());
    r.in_place = number() != 0;
    r.source.kind = text(), r.source.ref = text(), r.source.revision = text();
    r.sha256 = text();
    r.bytes = static_cast<uint64_t>(std::max<int64_t>(0, number()));
    r.license = text();
    r.gated = number() != 0;
    const Json triggers = parsed("trigger phrases that cannot be read");
    if (triggers.is_array())
      for (const Json& phrase : triggers)
        if (phrase.is_string()) r.triggers.push_back(phrase.get<std::string>());
    r.description = text(), r.cover_asset = text();
    r.defaults = defaults_from(parsed("defaults that cannot be read"));
    r.components = components_from(parsed("components that cannot be read"));
    r.probe = probe_from(parsed("a probe that cannot be read"));
    r.installed_at = number();
    if (const auto state = model_state_named(text())) r.state = *state;
    else broken("an unknown state");
    r.note = text();

    Statement files = database.prepare("SELECT path, bytes, sha256 FROM model_files WHERE model = ? ORDER BY path");
    files.bind(r.key);
    while (files.step())
      r.files.push_back({full(files.text(0)), static_cast<uint64_t>(std::max<int64_t>(0, files.integer(1))), files.text(2)});
    Statement related = database.prepare(
        "SELECT other FROM model_relations WHERE model = ? UNION SELECT model FROM model_relations WHERE other = ? ORDER BY 1");
    related.bind(r.key).bind(r.key);
    while (related.step()) r.related.push_back(related.text(0));
    return r;
  }

  std::optional<ModelRecord> one(const char* where, std::initializer_list<std::string_view> values) const {
    Statement found = database.prepare(fmt::format("SELECT {} FROM models WHERE {}", kColumns, where));
    for (const std::string_view value : values) found.bind(value);
    if (!found.step()) return std::nullopt;
    return read(found);
  }

  void write(const ModelRecord& r) const {
    database.prepare(fmt::format("INSERT INTO models ({}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", kColumns))
        .bind(r.key)
        .bind(r.name)
        .bind(name_of(r.type))
        .bind(r.family)
        .bind(r.variant)
        .bind(r.format)
        .bind(r.quant)
        .bind(kept(r.path))
        .bind(int64_t{r.in_place})
        .bind(r.source.kind)
        .bind(r.source.ref)
        .bind(r.source.revision)
        .bind(r.sha256)
        .bind(static_cast<int64_t>(r.bytes))
        .bind(r.license)
        .bind(int64_t{r.gated})
        .bind(dumped(r.triggers))
        .bind(r.description)
        .bind(r.cover_asset)
        .bind(dumped(to_json(r.defaults)))
        .bind(dumped(to_json(r.components)))
        .bind(dumped(to_json(r.probe)))
        .bind(r.installed_at)
        .bind(name_of(r.state))
        .bind(r.note)
        .run();
    for (const RecordedFile& f : r.files)
      database.prepare("INSERT OR REPLACE INTO model_files VALUES (?, ?, ?, ?)")
          .bind(r.key)
          .bind(kept(f.path))
          .bind(static_cast<int64_t>(f.bytes))
          .bind(f.sha256)
          .run();
  }

  bool erase(std::string_view key) const {
    database.prepare("DELETE FROM model_files WHERE model = ?").bind(key).run();
    database.prepare("DELETE FROM models WHERE key = ?").bind(key).run();
    return database.changes() > 0;
  }

  // ---- names ----

  bool taken(const char* column, std::string_view value) const {
    Statement found = database.prepare(fmt::format("SELECT 1 FROM models WHERE {} = ?", column));
    return found.bind(value).step();
  }

  std::string free_key(const ModelRecord& r) const {
    for (std::string seed = fmt::format("{}\n{}", name_of(r.type), kept(r.path));; seed += "+") {
      std::string key = flux2::sha256(std::as_bytes(std::span(seed))).substr(0, 10);
      if (!taken("key", key)) return key;
    }
  }

  std::string free_name(const std::string& wanted) const {
    std::string name = wanted;
    for (int i = 2; taken("name", name); ++i) name = fmt::format("{}-{}", wanted, i);
    return name;
  }
};

bool registry_available() { return true; }

Registry::Registry(fs::path data_folder) {
  data_folder = full_path(data_folder);
  store_ = std::make_unique<Store>(Store{data_folder, Database(data_folder / "flux2.db", Database::Access::Write)});
  migrate(store_->database, kArea, kSteps);
}

Registry::Registry(std::unique_ptr<Store> store) : store_(std::move(store)) {}
Registry::Registry(Registry&&) noexcept = default;
Registry& Registry::operator=(Registry&&) noexcept = default;
Registry::~Registry() = default;

std::optional<Registry> Registry::existing(const fs::path& data_folder) {
  std::error_code unreadable;
  if (data_folder.empty() || !fs::exists(data_folder / "flux2.db", unreadable)) return std::nullopt;
  const fs::path folder = full_path(data_folder);
  auto store = std::make_unique<Store>(Store{folder, Database(folder / "flux2.db", Database::Access::Read)});
  migrate(store->database, kArea, kSteps);
  return Registry(std::move(store));
}

const fs::path& Registry::data_folder() const { return store_->folder; }

std::vector<ModelRecord> Registry::all() const { return store_->all(store_->repeated()); }

std::optional<std::string> Registry::key_of(std::string_view key) const {
  Statement found = store_->database.prepare(fmt::format("SELECT key FROM models WHERE {}", kByKeyOrName));
  if (!found.bind(key).bind(key).bind(key).step()) return std::nullopt;
  return found.text(0);
}

std::optional<ModelRecord> Registry::find(std::string_view key) const {
  auto found = store_->one(kByKeyOrName, {key, key, key});
  if (!found) return found;
  const Store::Repeated older = store_->repeated();
  if (const auto newest = older.find(found->key); newest != older.end()) found = store_->one("key = ?", {newest->second});
  if (found) Store::renew_keys(*found, older);
  return found;
}

ModelRecord Registry::add(ModelRecord record) {
  check_model_name(record.name);
  Transaction transaction(store_->database);
  store_->tidy();
  if (auto known = store_->one("type = ? AND path = ?", {name_of(record.type), store_->kept(record.path)})) {
    record.key = known->key;
    record.name = known->name;
    record.description = known->description;
    record.triggers = known->triggers.empty() ? record.triggers : known->triggers;
    record.cover_asset = known->cover_asset;
    record.defaults = known->defaults;
    record.components = known->components;
    record.installed_at = known->installed_at;
    const bool same_source = known->source.kind == record.source.kind && known->source.ref == record.source.ref;
    if (!known->source.kind.empty() && !same_source) record.source = known->source;
    store_->erase(record.key);
  } else {
    record.key = store_->free_key(record);
    record.name = store_->free_name(record.name);
    record.installed_at =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  store_->write(record);
  transaction.commit();
  return *find(record.key);
}

void Registry::update(const ModelRecord& record) {
  check_model_name(record.name);
  Transaction transaction(store_->database);
  store_->tidy();
  if (const auto other = store_->one("name = ?", {record.name}); other && other->key != record.key)
    throw Error(ErrorCode::InvalidArgument, fmt::format("there is already a model called {}", other->name),
                "choose another name");
  if (!store_->erase(record.key)) fail(ErrorCode::NotFound, "no model has the key {}", record.key);
  if (const auto other = store_->one("type = ? AND path = ?", {name_of(record.type), store_->kept(record.path)}))
    throw Error(ErrorCode::InvalidArgument, fmt::format("{} is already registered as {}", record.path.string(), other->name),
                "give another path");
  store_->write(record);
  transaction.commit();
}

bool Registry::remove(std::string_view key) {
  Transaction transaction(store_->database);
  store_->tidy();
  const bool found = store_->erase(key);
  store_->database.prepare("DELETE FROM model_relations WHERE model = ? OR other = ?").bind(key).bind(key).run();
  transaction.commit();
  return found;
}

bool Registry::relate(std::string_view key, std::string_view other) {
  check(key != other, "a model cannot be related to itself");
  Transaction transaction(store_->database);
  store_->tidy();
  for (const std::string_view one : {key, other})
    if (!store_->taken("key", one)) fail(ErrorCode::NotFound, "no model has the key {}", one);
  store_->database.prepare("INSERT OR IGNORE INTO model_relations VALUES (?, ?)")
      .bind(std::min(key, other))
      .bind(std::max(key, other))
      .run();
  const bool changed = store_->database.changes() > 0;
  transaction.commit();
  return changed;
}

bool Registry::unrelate(std::string_view key, std::string_view other) {
  store_->database.prepare("DELETE FROM model_relations WHERE model = ? AND other = ?")
      .bind(std::min(key, other))
      .bind(std::max(key, other))
      .run();
  return store_->database.changes() > 0;
}

std::optional<std::string> Registry::known_hash(const fs::path& file) const {
  const auto now = stamp_of(file);
  Statement found = store_->database.prepare("SELECT bytes, changed, sha256 FROM file_hashes WHERE path = ?");
  if (!now || !found.bind(store_->kept(file)).step()) return std::nullopt;
  if (found.integer(0) != now->bytes || found.integer(1) != now->changed) return std::nullopt;
  return found.text(2);
}

void Registry::remember_hash(const fs::path& file, const std::string& sha256) {
  const auto now = stamp_of(file);
  if (!now) return;
  store_->database.prepare("INSERT OR REPLACE INTO file_hashes VALUES (?, ?, ?, ?)")
      .bind(store_->kept(file))
      .bind(now->bytes)
      .bind(now->changed)
      .bind(sha256)
      .run();
}

}  // namespace flux2
