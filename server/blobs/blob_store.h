#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace flux2 {

// Stored bytes, as a listing shows them.
struct Blob {
  std::string name;
  uint64_t bytes = 0;
  int64_t modified = 0;  // milliseconds since 1970
};

// Where the bytes of images are kept: a folder (also one that several machines share), or an S3-compatible store. Names are
// relative paths such as "generated/01J….png". The bytes of a name never change, so copies of them stay valid. Thread-safe.
class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // Complete and durable when it returns. After a kill the name has all of its bytes or does not exist.
  virtual void put(const std::string& name, std::span<const std::byte> bytes, const std::string& mime) = 0;
  // A local file with the bytes, which stays for at least a minute; nothing if the name does not exist.
  virtual std::optional<std::filesystem::path> fetch(const std::string& name) = 0;
  virtual bool exists(const std::string& name) = 0;
  virtual void remove(const std::string& name) = 0;  // does nothing if the name does not exist

  // Everything in one folder ("generated"), a page at a time. What is added meanwhile may be left out.
  using Page = std::function<void(std::span<const Blob>)>;
  virtual void list(const std::string& folder, const Page& page) = 0;

  // Removes what processes that were killed left half-written, once it is older than `age`. Returns the number of files.
  virtual int tidy(std::chrono::seconds age) = 0;

  virtual std::string where() const = 0;  // for messages: a folder, or "s3://bucket/prefix"
};

// A folder. Files are written completely to "workspace", then renamed.
std::unique_ptr<BlobStore> open_folder_blobs(const std::filesystem::path& folder);

// Throws InvalidArgument unless the name is a relative path of letters, digits and "._-" that stays inside its folder.
void check_blob_name(std::string_view name);

}  // namespace flux2
