#pragma once

#include <string>
#include <string_view>

namespace flux2 {

struct XmpContent {
  bool generated = true;      // IPTC digital source type "trained algorithmic media"
  bool composite = false;     // … "composite with trained algorithmic media": edits and inpainting
  std::string own_json = {};  // our record, for formats without text chunks
};

std::string xmp_packet(const XmpContent& content);

// Whether a packet, ours or not, says that a model made the image or part of it.
bool says_generated(std::string_view xmp);

// The record inside a packet that we wrote; empty when there is none.
std::string own_json_of_xmp(std::string_view xmp);

}  // namespace flux2
