#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/blobs/blob_store.h"

namespace flux2 {

// One page of the answer to "list the objects of this bucket" (ListObjectsV2).
struct S3Listing {
  std::vector<Blob> objects;
  std::string next;  // where the next page begins; empty: this was the last one
};

// Reads the XML of such an answer. Throws BadFile for anything else.
S3Listing read_s3_listing(std::string_view xml);

// The text of an element of an error answer: "Code", "Message"; empty if the answer is not XML or has no such element.
std::string s3_error_field(std::string_view xml, std::string_view element);

}  // namespace flux2
