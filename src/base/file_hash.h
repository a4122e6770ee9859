#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace flux2 {

// Calls `take` with the bytes of a file, one chunk at a time. Throws NotFound or BadFile.
void read_pieces(const std::filesystem::path& path, const std::function<void(std::span<const std::byte>)>& take);

std::string sha256_of_file(const std::filesystem::path& path);  // 64 hex digits

// The hash of a model file, cached by path, size and modification time in `cache` (a JSON file; an empty path disables the
// cache). Files larger than `at_most` bytes are not read: for them the result is the cached hash, or an empty string.
std::string remembered_hash(const std::filesystem::path& path, const std::filesystem::path& cache, uint64_t at_most = 64 << 20);

}  // namespace flux2
