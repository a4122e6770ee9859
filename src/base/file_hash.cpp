#include "base/file_hash.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/own_file.h"
#include "base/sha256.h"

namespace flux2 {

namespace fs = std::filesystem;

void read_pieces(const fs::path& path, const std::function<void(std::span<const std::byte>)>& take) {
  std::vector<std::byte> piece(1 << 20);
  struct Closed {
    int fd;
    ~Closed() { ::close(fd); }
  } const file{open_regular_file(path)};
  for (;;) {
    const ssize_t n = ::read(file.fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorCode::BadFile, "cannot read {}: {}", path.string(), std::strerror(errno));
    if (n == 0) return;
    take(std::span(piece).first(static_cast<size_t>(n)));
  }
}

std::string sha256_of_file(const fs::path& path) {
  Sha256 hash;
  read_pieces(path, [&](std::span<const std::byte> bytes) { hash.add(bytes); });
  return hash.hex();
}

namespace {

Json read_cache(const fs::path& cache) {
  try {
    std::error_code ignored;
    if (!cache.empty() && fs::exists(cache, ignored))
      if (Json json = read_json(cache); json.is_object()) return json;
  } catch (const Error&) {
    // A damaged cache is treated as empty.
  }
  return Json::object();
}

void write_cache(const fs::path& cache, const Json& json) {
  try {
    const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace);
    AtomicFile file(cache);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const Error&) {
    // The folder is not writable: the hash is computed again next time.
  }
}

}  // namespace

std::string remembered_hash(const fs::path& path, const fs::path& cache, uint64_t at_most) {
  std::error_code failed;
  const uint64_t size = fs::is_regular_file(path, failed) ? fs::file_size(path, failed) : 0;
  const auto changed = failed ? fs::file_time_type{} : fs::last_write_time(path, failed);
  if (failed || size == 0) return {};
  const Json key = {{"size", size}, {"changed", changed.time_since_epoch().count()}};

  const std::string name = fs::absolute(path).lexically_normal().string();
  Json entries = read_cache(cache);
  if (const auto found = entries.find(name);
      found != entries.end() && found->is_object() && found->value("file", Json()) == key && found->contains("sha256"))
    if (const Json& hash = (*found)["sha256"]; hash.is_string()) return hash.get<std::string>();
  if (size > at_most) return {};

  const std::string hash = sha256_of_file(path);
  if (!cache.empty()) {
    constexpr size_t kMostEntries = 10'000;
    if (entries.size() >= kMostEntries) entries = Json::object();  // most are of files that are long gone
    entries[name] = {{"file", key}, {"sha256", hash}};
    write_cache(cache, entries);
  }
  return hash;
}

}  // namespace flux2
