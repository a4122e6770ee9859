#pragma once

#include <string_view>

namespace flux2 {

// Whether a path told by a server may become a path below a folder of ours: relative, made of ordinary names, without
// "..", back-slashes, control characters or names that some systems reserve.
bool is_safe_path(std::string_view path);

bool is_hex(std::string_view text, size_t digits);  // lower-case
inline bool is_commit(std::string_view text) { return is_hex(text, 40); }

// A SHA-256 or a git blob id: what the cache names its blobs by.
inline bool is_blob_id(std::string_view text) { return is_hex(text, 64) || is_hex(text, 40); }

}  // namespace flux2
