#include "server/store/schema.h"

namespace flux2 {

namespace {

// Absent texts are '', absent times 0, absent JSON ''.
constexpr const char* kJobSteps[] = {
    "CREATE TABLE jobs ("
    "  id TEXT PRIMARY KEY, project TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, priority INTEGER NOT NULL,"
    "  seq INTEGER NOT NULL UNIQUE, lane TEXT NOT NULL, model_key TEXT NOT NULL, merge_key TEXT NOT NULL, request TEXT NOT NULL,"
    "  resolved TEXT NOT NULL, result TEXT NOT NULL, error TEXT NOT NULL, phase TEXT NOT NULL, step INTEGER NOT NULL,"
    "  steps INTEGER NOT NULL, progress REAL NOT NULL, message TEXT NOT NULL, client_ref TEXT NOT NULL,"
    "  idempotency_key TEXT NOT NULL, request_hash TEXT NOT NULL, retry_of TEXT NOT NULL, worker TEXT NOT NULL,"
    "  lease_until INTEGER NOT NULL, cancel INTEGER NOT NULL, created INTEGER NOT NULL, started INTEGER NOT NULL,"
    "  finished INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX jobs_by_order ON jobs (state, lane, priority DESC, seq);"
    "CREATE INDEX jobs_by_worker ON jobs (worker, state);"
    "CREATE INDEX jobs_by_end ON jobs (finished);"
    "CREATE UNIQUE INDEX jobs_by_idempotency_key ON jobs (idempotency_key) WHERE idempotency_key <> '';"
    "CREATE TABLE job_images ("
    "  job TEXT NOT NULL, idx INTEGER NOT NULL, asset TEXT NOT NULL, seed INTEGER NOT NULL, width INTEGER NOT NULL,"
    "  height INTEGER NOT NULL, PRIMARY KEY (job, idx)) WITHOUT ROWID;"
    "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, data TEXT NOT NULL, at INTEGER NOT NULL);"
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"};

constexpr const char* kStudioSteps[] = {
    "CREATE TABLE assets ("
    "  id TEXT PRIMARY KEY, project TEXT NOT NULL, kind TEXT NOT NULL, path TEXT NOT NULL, mime TEXT NOT NULL,"
    "  sha256 TEXT NOT NULL, job TEXT NOT NULL, parent TEXT NOT NULL, bytes INTEGER NOT NULL, width INTEGER NOT NULL,"
    "  height INTEGER NOT NULL, created INTEGER NOT NULL, missing INTEGER NOT NULL, UNIQUE (project, sha256, kind)) WITHOUT "
    "ROWID;"
    "CREATE INDEX assets_by_job ON assets (job) WHERE job <> ''",
    // What people do with images. `search` has everything that a search by words looks at, in small letters; `loras` has each
    // adapter between line ends. A seed of -1 is not known. `deleted` is when it was put into the trash.
    "ALTER TABLE assets ADD COLUMN name TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE assets ADD COLUMN prompt TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE assets ADD COLUMN search TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE assets ADD COLUMN model TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE assets ADD COLUMN loras TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE assets ADD COLUMN seed INTEGER NOT NULL DEFAULT -1;"
    "ALTER TABLE assets ADD COLUMN starred INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE assets ADD COLUMN board TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE assets ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX assets_by_project ON assets (project, id);"
    "CREATE INDEX assets_by_board ON assets (board, id) WHERE board <> '';"
    "CREATE INDEX assets_starred ON assets (id) WHERE starred = 1;"
    "CREATE INDEX assets_in_trash ON assets (deleted, id) WHERE deleted <> 0;"
    "CREATE INDEX assets_by_seed ON assets (seed) WHERE seed >= 0;"
    "CREATE INDEX assets_by_parent ON assets (parent) WHERE parent <> '';"
    "CREATE TABLE asset_tags (tag TEXT NOT NULL, asset TEXT NOT NULL, PRIMARY KEY (tag, asset)) WITHOUT ROWID;"
    "CREATE INDEX asset_tags_by_asset ON asset_tags (asset);"
    // The default project has the id ''.
    "CREATE TABLE projects ("
    "  id TEXT PRIMARY KEY, name TEXT NOT NULL, settings TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,"
    "  deleted INTEGER NOT NULL) WITHOUT ROWID;"
    "INSERT INTO projects (id, name, settings, created, updated, deleted) VALUES ('', 'Default', '{}', 0, 0, 0);"
    "CREATE TABLE boards ("
    "  id TEXT PRIMARY KEY, project TEXT NOT NULL, name TEXT NOT NULL, cover TEXT NOT NULL, position INTEGER NOT NULL)"
    "  WITHOUT ROWID;"
    "CREATE INDEX boards_by_project ON boards (project, position)",
    // Elements of the project '' are shared by all projects. `trigger_fold` is the trigger in small letters.
    "CREATE TABLE elements ("
    "  id TEXT PRIMARY KEY, project TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, trigger_word TEXT NOT NULL,"
    "  trigger_fold TEXT NOT NULL, description TEXT NOT NULL, weight_note TEXT NOT NULL, loras TEXT NOT NULL,"
    "  max_refs INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, UNIQUE (project, trigger_fold))"
    "  WITHOUT ROWID;"
    "CREATE INDEX elements_by_trigger ON elements (trigger_fold);"
    "CREATE TABLE element_images ("
    "  element TEXT NOT NULL, asset TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (element, asset)) WITHOUT ROWID;"
    "CREATE INDEX element_images_by_asset ON element_images (asset);"
    "CREATE TABLE scenes ("
    "  id TEXT PRIMARY KEY, project TEXT NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL)"
    "  WITHOUT ROWID;"
    "CREATE INDEX scenes_by_project ON scenes (project, position);"
    "CREATE TABLE shots ("
    "  id TEXT PRIMARY KEY, project TEXT NOT NULL, scene TEXT NOT NULL, position INTEGER NOT NULL, fields TEXT NOT NULL,"
    "  matched TEXT NOT NULL, last_job TEXT NOT NULL, thumbnail TEXT NOT NULL, created INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX shots_by_project ON shots (project, position);"
    "CREATE INDEX shots_by_thumbnail ON shots (thumbnail) WHERE thumbnail <> ''",
    // The final prompt, where it is not the one that was sent: with the style of a project and the texts of elements.
    "ALTER TABLE assets ADD COLUMN words TEXT NOT NULL DEFAULT ''"};

constexpr const char* kAccessSteps[] = {
    "CREATE TABLE api_keys ("
    "  id TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, name TEXT NOT NULL, scope TEXT NOT NULL, created INTEGER NOT NULL,"
    "  used INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE sessions ("
    "  hash TEXT PRIMARY KEY, key TEXT NOT NULL, scope TEXT NOT NULL, created INTEGER NOT NULL, seen INTEGER NOT NULL)"
    "  WITHOUT ROWID",
    "ALTER TABLE api_keys ADD COLUMN rate INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE api_keys ADD COLUMN queue INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE api_keys ADD COLUMN work INTEGER NOT NULL DEFAULT 0"};

}  // namespace

void migrate_jobs(SqlDatabase& database) { database.migrate("jobs", kJobSteps); }
void migrate_studio(SqlDatabase& database) { database.migrate("studio", kStudioSteps); }
void migrate_access(SqlDatabase& database) { database.migrate("access", kAccessSteps); }

}  // namespace flux2
