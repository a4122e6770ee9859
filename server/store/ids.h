#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flux2 {

int64_t now_ms();  // milliseconds since 1970

// A new id: 26 characters of Crockford base32, 48 bits of milliseconds and 80 random bits. Ids of one process increase.
std::string new_id();
bool is_id(std::string_view text);

// "job_01J…" → "01J…"; empty if the prefix or the rest is wrong.
std::string id_without_prefix(std::string_view text, std::string_view prefix);

std::string rfc3339(int64_t ms);  // "2026-11-16T12:00:00.000Z"; "" for 0

// Cryptographically random bytes as base64url.
std::string random_token(size_t bytes);

}  // namespace flux2
