#include "server/store/asset_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/path_exists.h"
#include "base/sha256.h"
#include "image/codecs.h"
#include "image/image_header.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "server/store/ids.h"
#include "server/store/schema.h"
#include "server/store/sqlite_sql.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kGenerated = "generated";
constexpr const char* kUploads = "uploads";
constexpr const char* kThumbs = "thumbs";
constexpr const char* kWorkspace = "workspace";  // files that are being written
constexpr const char* kTemporary = "temporary";
constexpr int kThumbSide = 384, kThumbQuality = 80;

constexpr const char* kAssetColumns =
    "id, project, kind, path, mime, sha256, job, parent, bytes, width, height, created, missing";

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

fs::path thumbnail_name(const std::string& id, ImageFormat format) {
  return fmt::format("{}/{}.{}", kThumbs, id, name_of(format));
}

}  // namespace

AssetStore::AssetStore(const fs::path& data_folder, ImageLimits limits)
    : AssetStore(data_folder, open_sqlite(data_folder / "flux2.db"), limits) {}

AssetStore::AssetStore(const fs::path& data_folder, std::shared_ptr<SqlDatabase> database, ImageLimits limits)
    : folder_(data_folder), limits_(limits), database_(std::move(database)) {
  migrate_studio(*database_);
  for (const char* name : {kGenerated, kUploads, kThumbs, kWorkspace}) {
    std::error_code failure;
    fs::create_directories(folder_ / name, failure);
    if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", (folder_ / name).string(), failure.message());
  }
}

Asset AssetStore::put(std::span<const std::byte> bytes, Asset fields) {
  check(!fields.kind.empty() && std::all_of(fields.kind.begin(), fields.kind.end(), [](char c) { return c >= 'a' && c <= 'z'; }),
        "\"{}\" is not a kind of asset", fields.kind);
  const ImageHeader header = checked_header(bytes, limits_);
  Asset asset = std::move(fields);
  asset.mime = mime_of(header.format);
  asset.sha256 = sha256(bytes);
  asset.bytes = bytes.size();
  asset.width = header.width;
  asset.height = header.height;
  asset.created = now_ms();
  asset.missing = false;

  const auto refreshed = [&](Asset equal) {
    if (!is_file(folder_ / equal.path)) write_file(bytes, equal.path);
    if (equal.kind == kTemporary) equal.created = asset.created;  // its time begins again
    equal.missing = false;
    database_->writing([&](SqlConnection& sql) {
      sql.prepare("UPDATE assets SET missing = 0, created = ? WHERE id = ?").bind(equal.created).bind(equal.id).run();
    });
    return equal;
  };
  if (auto equal = find_equal(asset)) return refreshed(std::move(*equal));

  asset.id = new_id();
  asset.path = fmt::format("{}/{}.{}", folder_of_kind(asset.kind), asset.id, name_of(header.format));
  write_file(bytes, asset.path);
  const bool is_new = database_->writing([&](SqlConnection& sql) {
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
  });
  if (is_new) return asset;
  remove_files(asset);  // another thread or process has stored the same bytes meanwhile
  auto equal = find_equal(asset);
  return equal ? refreshed(std::move(*equal)) : put(bytes, std::move(asset));
}

Asset AssetStore::put_file(const fs::path& file, Asset fields) {
  Asset asset;
  if (is_file(file) && fs::file_size(file) == 0) checked_header({}, limits_);  // throws; an empty file cannot be mapped
  asset = put(MappedFile::open(file)->bytes(), std::move(fields));
  std::error_code ignored;
  fs::remove(file, ignored);
  return asset;
}

// Goes through the workspace, which is nearly empty: writing atomically lists the folder of the file.
void AssetStore::write_file(std::span<const std::byte> bytes, const fs::path& relative) const {
  const fs::path draft = folder_ / kWorkspace / (new_id() + relative.extension().string()), target = folder_ / relative;
  AtomicFile file(draft);
  file.write(bytes);
  file.commit();
  std::error_code failure;
  fs::rename(draft, target, failure);
  if (!failure) return;
  std::error_code ignored;
  fs::remove(draft, ignored);
  fail(ErrorCode::CannotWrite, "cannot write {}: {}", target.string(), failure.message());
}

std::optional<Asset> AssetStore::find_equal(const Asset& asset) const {
  return database_->reading([&](SqlConnection& sql) -> std::optional<Asset> {
    SqlStatement row =
        sql.prepare(fmt::format("SELECT {} FROM assets WHERE project = ? AND sha256 = ? AND kind = ?", kAssetColumns));
    row.bind(asset.project).bind(asset.sha256).bind(asset.kind);
    return row.step() ? std::optional(read_asset(row)) : std::nullopt;
  });
}

std::optional<Asset> AssetStore::get(const std::string& id) const {
  return database_->reading([&](SqlConnection& sql) -> std::optional<Asset> {
    SqlStatement row = sql.prepare(fmt::format("SELECT {} FROM assets WHERE id = ?", kAssetColumns));
    row.bind(id);
    return row.step() ? std::optional(read_asset(row)) : std::nullopt;
  });
}

std::vector<Asset> AssetStore::list(const AssetFilter& filter) const {
  const auto [condition, values] = asset_condition(filter, true);
  return database_->reading([&, &where = condition, &parameters = values](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(fmt::format("SELECT {} FROM assets WHERE {} ORDER BY id DESC LIMIT ?", kAssetColumns, where));
    for (const std::string& value : parameters) rows.bind(value);
    rows.bind(std::max(filter.limit, 0));
    std::vector<Asset> assets;
    while (rows.step()) assets.push_back(read_asset(rows));
    return assets;
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
  const fs::path relative = fs::path(asset.path).lexically_normal();
  check(relative.is_relative() && !relative.empty() && *relative.begin() != "..", "{} lies outside the data folder", asset.path);
  fs::path path = folder_ / relative;
  if (!is_file(path)) fail(ErrorCode::NotFound, "the file of asset {} is gone", asset.id);
  return path;
}

fs::path AssetStore::thumbnail(const Asset& asset) const {
  check(is_id(asset.id), "\"{}\" is not the id of an asset", asset.id);
  const ImageFormat format = webp_available() ? ImageFormat::WebP : ImageFormat::Jpeg;
  const fs::path name = thumbnail_name(asset.id, format);
  if (is_file(folder_ / name)) return folder_ / name;
  Image image = read_image(path_of(asset), {.limits = limits_});
  const int longest = std::max(image.width, image.height);
  const auto scaled = [&](int side) {
    const auto pixels = (int64_t{side} * kThumbSide * 2 + longest) / (int64_t{longest} * 2);
    return static_cast<int>(std::max<int64_t>(pixels, 1));
  };
  if (longest > kThumbSide) image = resize(image, scaled(image.width), scaled(image.height));
  write_file(encode_image(image, format, {}, {.quality = kThumbQuality}), name);
  return folder_ / name;
}

void AssetStore::remove_files(const Asset& asset) const {
  std::error_code ignored;
  fs::remove(folder_ / asset.path, ignored);
  for (const ImageFormat format : {ImageFormat::WebP, ImageFormat::Jpeg})
    fs::remove(folder_ / thumbnail_name(asset.id, format), ignored);
}

bool AssetStore::remove(const std::string& id) {
  const auto asset = get(id);
  if (!asset) return false;
  const bool removed =
      database_->writing([&](SqlConnection& sql) { return sql.prepare("DELETE FROM assets WHERE id = ?").bind(id).run() > 0; });
  if (!removed) return false;
  remove_files(*asset);
  return true;
}

int AssetStore::remove_older(const std::string& kind, int64_t before_ms) {
  const auto ids = database_->reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare("SELECT id FROM assets WHERE kind = ? AND created < ?");
    rows.bind(kind).bind(before_ms);
    std::vector<std::string> found;
    while (rows.step()) found.push_back(rows.text(0));
    return found;
  });
  return static_cast<int>(std::count_if(ids.begin(), ids.end(), [&](const std::string& id) { return remove(id); }));
}

AssetStore::Swept AssetStore::sweep(int64_t age_seconds) {
  Swept swept;
  remove_stale_temporaries(folder_ / kWorkspace);
  const auto newest = fs::file_time_type::clock::now() - std::chrono::seconds(age_seconds);
  for (const char* name : {kGenerated, kUploads, kThumbs, kWorkspace}) {
    std::error_code failure;
    std::vector<fs::path> files;
    for (fs::directory_iterator file(folder_ / name, failure), end; !failure && file != end; file.increment(failure))
      files.push_back(file->path());
    for (const fs::path& file : files) {
      // Only names that this store has made: a file that somebody put here by hand stays.
      const std::string id = file.stem().string();
      if (!is_id(id) || !is_file(file) || fs::last_write_time(file, failure) > newest) continue;
      if (name != std::string_view(kWorkspace) && get(id)) continue;
      if (fs::remove(file, failure)) ++swept.files_removed;
    }
  }
  std::vector<Asset> assets = database_->reading([&](SqlConnection& sql) {
    SqlStatement rows = sql.prepare(fmt::format("SELECT {} FROM assets", kAssetColumns));
    std::vector<Asset> found;
    while (rows.step()) found.push_back(read_asset(rows));
    return found;
  });
  std::erase_if(assets, [&](Asset& asset) {
    const bool missing = !is_file(folder_ / asset.path);
    if (missing) ++swept.rows_missing;
    return std::exchange(asset.missing, missing) == missing;
  });
  database_->writing([&](SqlConnection& sql) {
    for (const Asset& asset : assets)
      sql.prepare("UPDATE assets SET missing = ? WHERE id = ?").bind(asset.missing ? 1 : 0).bind(asset.id).run();
  });
  return swept;
}

}  // namespace flux2
