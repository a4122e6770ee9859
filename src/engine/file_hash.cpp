#include "engine/file_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <memory>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"

namespace flux2 {

namespace fs = std::filesystem;

std::string sha256_of(const fs::path& path) {
  const auto file = MappedFile::open(path);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  const auto bytes = file->bytes();
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) != 1 ||
      EVP_DigestFinal_ex(context.get(), digest.data(), &size) != 1)
    fail(ErrorCode::Internal, "cannot hash {}", path.string());
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

namespace {

Json read_cache(const fs::path& cache) {
  try {
    std::error_code ignored;
    if (!cache.empty() && fs::exists(cache, ignored))
      if (Json json = read_json(cache); json.is_object()) return json;
  } catch (const Error&) {
    // A damaged cache is an empty one.
  }
  return Json::object();
}

void write_cache(const fs::path& cache, const Json& json) {
  try {
    const std::string text = json.dump(1);
    AtomicFile file(cache);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const Error&) {
    // A folder we may not write to: the hash is computed again next time.
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

  const std::string hash = sha256_of(path);
  if (!cache.empty()) {
    entries[name] = {{"file", key}, {"sha256", hash}};
    write_cache(cache, entries);
  }
  return hash;
}

}  // namespace flux2
