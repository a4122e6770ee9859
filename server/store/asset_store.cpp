#include "server/store/asset_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <unordered_set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/path_exists.h"
#include "base/sha256.h"
#include "image/codecs.h"
#include "image/image_header.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "server/store/asset_catalog.h"
#include "server/store/asset_rows.h"
#include "server/store/ids.h"
#include "server/store/schema.h"
#include "server/store/sql_rows.h"
#include "server/store/sqlite_sql.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kGenerated = "generated";
constexpr const char* kUploads = "uploads";
constexpr const char* kThumbs = "thumbs";
constexpr const char* kTemporary = "temporary";
constexpr int kThumbSide = 384, kThumbQuality = 80;

// The condition of a filter and the values of its parameters.
std::pair<std::string, std::vector<std::string>> asset_condition(const AssetFilter& filter, bool with_before) {
  std::pair<std::string, std::vector<std::string>> condition{"TRUE", {}};
  const auto narrow = [&](const char* part, const std::string& value) {
    if (value.empty()) return;
    condition.first += fmt::format(" AND {} ?", part);
    condition.second.push_back(value);
  };
  narrow("project =", filter.project);
  narrow("kind =", filter.kind);
  narrow("job =", filter.job);
  if (with_before) narrow("id <", filter.before);
  return condition;
}

const char* mime_of(ImageFormat format) {
  switch (format) {
    case ImageFormat::Png: return "image/png";
    case ImageFormat::Jpeg: return "image/jpeg";
    case ImageFormat::WebP: return "image/webp";
    case ImageFormat::Ppm: return "image/x-portable-anymap";
    case ImageFormat::Bmp: return "image/bmp";
  }
  return "application/octet-stream";
}

const char* folder_of_kind(const std::string& kind) {
  return kind == "image" || kind == "sheet" || kind == kTemporary ? kGenerated : kUploads;
}

// What an upload that cannot be used is told.
ImageHeader checked_header(std::span<const std::byte> bytes, const ImageLimits& limits) {
  try {
    const ImageHeader header = read_image_header(bytes, limits);
    const auto readable = readable_formats();
    if (std::find(readable.begin(), readable.end(), header.format) == readable.end())
      throw Error(ErrorCode::BadFile, fmt::format("this build cannot read {} images", name_of(header.format)),
                  "send the image as PNG or JPEG");
    return header;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::BadFile) throw;
    throw Error(ErrorCode::InvalidArgument, e.what(), e.hint());
  }
}

std::string thumbnail_name(const std::string& id, ImageFormat format) {
  return fmt::format("{}/{}.{}", kThumbs, id, name_of(format));
}

}  // namespace

Asset read_asset(const SqlStatement& row) {
  Asset asset;
  asset.id = row.text(0);
  asset.project = row.text(1);
  asset.kind = row.text(2);
  asset.path = row.text(3);
  asset.mime = row.text(4);
  asset.sha256 = row.text(5);
  asset.job = row.text(6);
  asset.parent = row.text(7);
  asset.bytes = static_cast<uint64_t>(row.integer(8));
  asset.width = static_cast<int>(row.integer(9));
  asset.height = static_cast<int>(row.integer(10));
  asset.created = row.integer(11);
  asset.missing = row.integer(12) != 0;
  return asset;
}

AssetStore::AssetStore(const fs::path& data_folder, ImageLimits limits)
    : AssetStore(data_folder, open_folder_blobs(data_folder), open_sqlite(data_folder / "flux2.db"), limits) {}

AssetStore::AssetStore(const fs::path& data_folder, std::unique_ptr<BlobStore> blobs, std::shared_ptr<SqlDatabase> database,
                       ImageLimits limits)
    : folder_(data_folder), blobs_(std::move(blobs)), limits_(limits), database_(std::move(database)) {
  migrate_jobs(*database_);  // the images of a job belong to its project
  migrate_studio(*database_);
}

std::string AssetStore::project_of(const Asset& asset) const {
  if (!asset.project.empty() || asset.job.empty()) return asset.project;
  return database_->reading([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare("SELECT project FROM jobs WHERE id = ?");
    return row.bind(std::string_view(asset.job)).step() ? row.text(0) : std::string();
  });
}

// With what its bytes say about it.
Asset AssetStore::described(std::span<const std::byte> bytes, Asset fields) const {
  check(!fields.kind.empty() && std::all_of(fields.kind.begin(), fields.kind.end(), [](char c) { return c >= 'a' && c <= 'z'; }),
        "\"{}\" is not a kind of asset", fields.kind);
  const ImageHeader header = checked_header(bytes, limits_);
  Asset asset = std::move(fields);
  asset.mime = mime_of(header.format);
  asset.path = name_of(header.format);  // the ending, until there is an id
  asset.sha256 = sha256(bytes);
  asset.bytes = bytes.size();
  asset.width = header.width;
  asset.height = header.height;
  asset.created = now_ms();
  asset.missing = false;
  return asset;
}

void AssetStore::write_file(std::span<const std::byte> bytes, Asset& asset) {
  asset.id = new_id();
  asset.path = fmt::format("{}/{}.{}", folder_of_kind(asset.kind), asset.id, asset.path);
  blobs_->put(asset.path, bytes, asset.mime);
}

Asset AssetStore::write_blob(std::span<const std::byte> bytes, Asset fields) {
  Asset asset = described(bytes, std::move(fields));
  write_file(bytes, asset);
  return asset;
}

bool insert_asset_row(SqlConnection& sql, const Asset& asset) {
  return sql.prepare(fmt::format("INSERT INTO assets ({}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0) "
                                 "ON CONFLICT (project, sha256, kind) DO NOTHING",
                                 kAssetColumns))
             .bind(asset.id)
             .bind(asset.project)
             .bind(asset.kind)
             .bind(asset.path)
             .bind(asset.mime)
             .bind(asset.sha256)
             .bind(asset.job)
             .bind(asset.parent)
             .bind(static_cast<int64_t>(asset.bytes))
             .bind(asset.width)
             .bind(asset.height)
             .bind(asset.created)
             .run() > 0;
}

Asset AssetStore::put(std::span<const std::byte> bytes, Asset fields) {
  Asset asset = described(bytes, std::move(fields));
  asset.project = project_of(asset);

  // Nothing if it was removed meanwhile.
  const auto refreshed = [&](Asset equal) -> std::optional<Asset> {
    if (!blobs_->exists(equal.path)) blobs_->put(equal.path, bytes, equal.mime);
    if (equal.kind == kTemporary) equal.created = asset.created;  // its time begins again
    equal.missing = false;
    const bool is_there = database_->writing([&](SqlConnection& sql) {
      return sql.prepare("UPDATE assets SET missing = 0, deleted = 0, created = ? WHERE id = ?")
                 .bind(equal.created)
                 .bind(equal.id)
                 .run() > 0;
    });
    if (is_there) return equal;
    remove_files(equal);  // its bytes may have come back above
    return std::nullopt;
  };
  if (auto equal = find_equal(asset))
    if (auto found = refreshed(std::move(*equal))) return *found;

  write_file(bytes, asset);
  if (database_->writing([&](SqlConnection& sql) { return insert_asset_row(sql, asset); })) return asset;
  remove_files(asset);  // another thread or process has stored the same bytes meanwhile
  if (auto equal = find_equal(asset))
    if (auto found = refreshed(std::move(*equal))) return *found;
  return put(bytes, std::move(asset));
}

Asset AssetStore::put_file(const fs::path& file, Asset fields) {
  Asset asset;
  if (is_file(file) && fs::file_size(file) == 0) checked_header({}, limits_);  // throws; an empty file cannot be mapped
  asset = put(MappedFile::open(file)->bytes(), std::move(fields));
  std::error_code ignored;
  fs::remove(file, ignored);
  return asset;
}

std::optional<Asset> AssetStore::find_equal(const Asset& asset) const {
  return database_->reading([&](SqlConnection& sql) {
    SqlStatement row =
        sql.prepare(fmt::format("SELECT {} FROM assets WHERE project = ? AND sha256 = ? AND kind = ?", kAssetColumns));
    row.bind(asset.project).bind(asset.sha256).bind(asset.kind);
    return first_row(row, read_asset);
  });
}

std::optional<Asset> AssetStore::get(const std::string& id) const {
  return database_->reading([&](SqlConnection& sql) {
    SqlStatement row = sql.prepare(fmt::format("SELECT {} FROM assets WHERE id = ?", kAssetColumns));
    row.bind(id);
    return first_row(row, read_asset);
  });
}

std::vector<Asset> AssetStore::list(const AssetFilter& filter) const {
  const auto [condition, values] = asset_condition(filter, true);
  return database_->reading([&, &where = condition, &parameters = values](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(fmt::format("SELECT {} FROM assets WHERE {} ORDER BY id DESC LIMIT ?", kAssetColumns, where));
    for (const std::string& value : parameters) rows.bind(value);
    rows.bind(std::max(filter.limit, 0));
    return all_rows(rows, read_asset);
  });
}

int64_t AssetStore::count(const AssetFilter& filter) const {
  const auto [condition, values] = asset_condition(filter, false);
  return database_->reading([&, &where = condition, &parameters = values](SqlConnection& sql) {
    SqlStatement row = sql.prepare("SELECT count(*) FROM assets WHERE " + where);
    for (const std::string& value : parameters) row.bind(value);
    return row.step() ? row.integer(0) : 0;
  });
}

fs::path AssetStore::path_of(const Asset& asset) const {
  auto path = blobs_->fetch(asset.path);
  if (!path) fail(ErrorCode::NotFound, "the file of asset {} was deleted", asset.id);
  return std::move(*path);
}

fs::path AssetStore::thumbnail(const Asset& asset) const {
  check(is_id(asset.id), "\"{}\" is not the id of an asset", asset.id);
  const ImageFormat format = webp_available() ? ImageFormat::WebP : ImageFormat::Jpeg;
  const std::string name = thumbnail_name(asset.id, format);
  if (auto made = blobs_->fetch(name)) return std::move(*made);
  Image image = read_image(path_of(asset), {.limits = limits_});
  const int longest = std::max(image.width, image.height);
  const auto scaled = [&](int side) {
    const auto pixels = (int64_t{side} * kThumbSide * 2 + longest) / (int64_t{longest} * 2);
    return static_cast<int>(std::max<int64_t>(pixels, 1));
  };
  if (longest > kThumbSide) image = resize(image, scaled(image.width), scaled(image.height));
  blobs_->put(name, encode_image(image, format, {}, {.quality = kThumbQuality}), mime_of(format));
  auto made = blobs_->fetch(name);
  if (!made) fail(ErrorCode::NotFound, "the thumbnail of asset {} was deleted", asset.id);
  return std::move(*made);
}

void AssetStore::remove_files(const Asset& asset) const {
  for (const std::string& name :
       {asset.path, thumbnail_name(asset.id, ImageFormat::WebP), thumbnail_name(asset.id, ImageFormat::Jpeg)}) {
    try {
      blobs_->remove(name);
    } catch (const Error&) {  // the next sweep will do it
    }
  }
}

bool AssetStore::remove(const std::string& id) {
  const auto asset = get(id);
  if (!asset) return false;
  const bool removed = database_->writing([&](SqlConnection& sql) {
    forget_asset(sql, id);
    return sql.prepare("DELETE FROM assets WHERE id = ?").bind(id).run() > 0;
  });
  if (!removed) return false;
  remove_files(*asset);
  return true;
}

int AssetStore::remove_older(const std::string& kind, int64_t before_ms) {
  const auto ids = database_->reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare("SELECT id FROM assets WHERE kind = ? AND created < ?");
    rows.bind(kind).bind(before_ms);
    return all_rows(rows, first_text);
  });
  return static_cast<int>(std::count_if(ids.begin(), ids.end(), [&](const std::string& id) { return remove(id); }));
}

std::set<std::string> AssetStore::known(const std::vector<std::string>& ids) const {
  if (ids.empty()) return {};
  std::string places;
  for (size_t i = 0; i < ids.size(); ++i) places += i == 0 ? "?" : ", ?";
  return database_->reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(fmt::format("SELECT id FROM assets WHERE id IN ({})", places));
    for (const std::string& id : ids) rows.bind(id);
    std::set<std::string> found;
    while (rows.step()) found.insert(rows.text(0));
    return found;
  });
}

AssetStore::Swept AssetStore::sweep(int64_t age_seconds) {
  Swept swept;
  AssetCatalog(*database_).describe_old();
  swept.files_removed = blobs_->tidy(std::chrono::seconds(age_seconds));
  const int64_t newest = now_ms() - age_seconds * 1000;
  std::unordered_set<std::string> there;
  for (const char* folder : {kGenerated, kUploads, kThumbs}) {
    blobs_->list(folder, [&](std::span<const Blob> page) {
      std::vector<const Blob*> old;
      std::vector<std::string> ids;
      for (const Blob& blob : page) {
        // Only names that this store has made: a file that somebody put here by hand stays.
        const std::string id = fs::path(blob.name).stem().string();
        if (!is_id(id)) continue;
        if (folder != std::string_view(kThumbs)) there.insert(blob.name);
        if (blob.modified > newest) continue;
        old.push_back(&blob);
        ids.push_back(id);
      }
      const std::set<std::string> rows = known(ids);
      for (size_t i = 0; i < old.size(); ++i) {
        if (rows.contains(ids[i])) continue;
        blobs_->remove(old[i]->name);
        ++swept.files_removed;
      }
    });
  }
  std::vector<Asset> assets = database_->reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(fmt::format("SELECT {} FROM assets", kAssetColumns));
    return all_rows(rows, read_asset);
  });
  std::erase_if(assets, [&](Asset& asset) {
    // One that another process has stored since the listing is not in it.
    const bool missing = !there.contains(asset.path) && !blobs_->exists(asset.path);
    if (missing) ++swept.rows_missing;
    return std::exchange(asset.missing, missing) == missing;
  });
  if (assets.empty()) return swept;
  database_->writing([&](SqlConnection& sql) {
    for (const Asset& asset : assets)
      sql.prepare("UPDATE assets SET missing = ? WHERE id = ?").bind(asset.missing ? 1 : 0).bind(asset.id).run();
  });
  return swept;
}

}  // namespace flux2
