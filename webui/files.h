#pragma once

#include <span>
#include <string_view>

namespace flux2 {

// One file of the page, as the build embedded it.
struct PageFile {
  std::string_view path;          // "index.html", "tabs/edit.js"
  std::string_view plain, gzip;   // its bytes, and the same compressed
  std::string_view content_type;  // "text/javascript; charset=utf-8"
};
std::span<const PageFile> page_files();

// A hash of all of them. Their addresses contain it, so browsers may keep them for ever.
std::string_view page_version();

}  // namespace flux2
