#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace flux2 {

// What an archive that somebody sends may contain.
struct ZipLimits {
  uint64_t entries = 200'000;
  uint64_t entry_bytes = uint64_t{1} << 30;
  // All entries together, relative to the archive: images hardly become smaller, so an archive that grows this much is an attack.
  uint64_t growth = 50;
  uint64_t small_total = uint64_t{256} << 20;  // an archive that stays below is not an attack
};

// Reads a zip archive that comes from somebody else. Damaged and encrypted archives, names that lead out of a folder, entries
// over the limits and names that are there twice are InvalidArgument. Nothing is written anywhere.
class ZipReader {
 public:
  virtual ~ZipReader() = default;

  virtual bool contains(const std::string& name) const = 0;
  virtual uint64_t size_of(const std::string& name) const = 0;             // 0 if there is none
  virtual std::vector<std::byte> read(const std::string& name) const = 0;  // checks the checksum
};

bool zip_reader_available();
std::unique_ptr<ZipReader> open_zip(const std::filesystem::path& file, const ZipLimits& limits = {});

}  // namespace flux2
