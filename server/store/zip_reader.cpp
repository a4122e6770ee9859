#include "server/store/zip_reader.h"

#include <zip.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

[[noreturn]] void refuse_archive(const std::string& why) { fail(ErrorCode::InvalidArgument, "the archive {}", why); }

bool is_safe_name(const std::string& name) {
  if (name.empty() || name.size() > 1000 || name.front() == '/' || name.find('\\') != name.npos || name.find(':') != name.npos ||
      name.find('\0') != name.npos || !is_utf8(name))
    return false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part == ".." || part == "." || (part.empty() && end != name.size())) return false;
    begin = end + 1;
  }
  return true;
}

class LibzipReader : public ZipReader {
 public:
  LibzipReader(const std::filesystem::path& file, const ZipLimits& limits) {
    int code = 0;
    archive_ = zip_open(file.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code);
    if (!archive_) {
      zip_error_t error;
      zip_error_init_with_code(&error, code);
      const std::string why = zip_error_strerror(&error);
      zip_error_fini(&error);
      refuse_archive("cannot be read: " + why);
    }
    try {
      look_through(std::filesystem::file_size(file), limits);
    } catch (...) {
      zip_discard(archive_);
      throw;
    }
  }
  ~LibzipReader() override { zip_discard(archive_); }

  bool contains(const std::string& name) const override { return entries_.contains(name); }
  uint64_t size_of(const std::string& name) const override {
    const auto found = entries_.find(name);
    return found == entries_.end() ? 0 : found->second.size;
  }

  std::vector<std::byte> read(const std::string& name) const override {
    const auto found = entries_.find(name);
    if (found == entries_.end()) refuse_archive("has no entry " + printable(name));
    std::vector<std::byte> bytes(static_cast<size_t>(found->second.size));
    zip_file_t* entry = zip_fopen_index(archive_, found->second.index, 0);
    if (!entry) refuse_archive("is damaged: " + printable(name));
    size_t done = 0;
    zip_int64_t got = 0;
    while (done < bytes.size() && (got = zip_fread(entry, bytes.data() + done, bytes.size() - done)) > 0)
      done += static_cast<size_t>(got);
    // The checksum is compared when the end is reached, so one byte more is asked for. It would be one too many.
    std::byte more{};
    const bool is_whole = done == bytes.size() && zip_fread(entry, &more, 1) == 0;
    zip_fclose(entry);
    if (!is_whole) refuse_archive("is damaged: " + printable(name));
    return bytes;
  }

 private:
  struct Place {
    zip_uint64_t index = 0;
    uint64_t size = 0;
  };

  void look_through(uint64_t file_bytes, const ZipLimits& limits) {
    const zip_int64_t count = zip_get_num_entries(archive_, 0);
    if (count < 0 || static_cast<uint64_t>(count) > limits.entries)
      refuse_archive("has more than " + std::to_string(limits.entries) + " entries");
    uint64_t total = 0;
    for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
      zip_stat_t about;
      zip_stat_init(&about);
      constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_ENCRYPTION_METHOD;
      if (zip_stat_index(archive_, i, ZIP_FL_ENC_GUESS, &about) != 0 || (about.valid & kNeeded) != kNeeded)
        refuse_archive("is damaged");
      const std::string name = about.name;
      if (!is_safe_name(name)) refuse_archive("has an entry with a forbidden name: " + printable(name));
      if (about.encryption_method != ZIP_EM_NONE) refuse_archive("is encrypted");
      if (about.size > limits.entry_bytes) refuse_archive("has an entry that is too large: " + printable(name));
      total += about.size;
      if (total > limits.small_total && total / limits.growth > file_bytes)
        refuse_archive("would become more than " + std::to_string(limits.growth) + " times as large");
      if (name.back() != '/' && !entries_.emplace(name, Place{i, about.size}).second)
        refuse_archive("has an entry twice: " + printable(name));
    }
  }

  zip_t* archive_ = nullptr;
  std::map<std::string, Place> entries_;
};

}  // namespace

bool zip_reader_available() { return true; }

std::unique_ptr<ZipReader> open_zip(const std::filesystem::path& file, const ZipLimits& limits) {
  return std::make_unique<LibzipReader>(file, limits);
}

}  // namespace flux2
