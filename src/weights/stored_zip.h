#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace flux2 {

// The files of a zip archive whose files are stored without compression, as torch.save writes them: name → bytes inside the
// archive, which must outlive them. Throws BadFile for damaged archives, compressed or encrypted files, and names that occur
// twice.
std::map<std::string, std::span<const std::byte>> read_stored_zip(std::span<const std::byte> archive);

}  // namespace flux2
