#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "net/http.h"

namespace flux2 {

// A number that is nothing but digits, at most 18 of them.
std::optional<uint64_t> decimal(std::string_view text);

// What "bytes 5-9/10" and "bytes */10" tell; a total of "*" is not known.
struct ContentRange {
  std::optional<uint64_t> begin, total;
};
ContentRange content_range(const HttpAnswer& answer);

// How long the whole file is: the total of a 206, the length of any other answer.
std::optional<uint64_t> whole_size(const HttpAnswer& answer);

// An ETag without its quotes and without the W/ of a weak one.
std::string bare_etag(std::string text);

}  // namespace flux2
