#include "base/error.h"
#include "server/blobs/s3_listing.h"
#include "tests/fuzz/target.h"

// Listings and errors of an S3-compatible store: objects have names, and what is read is never more than what was sent.
FUZZ_TARGET(s3_list) {
  const std::string_view xml = flux2_fuzz::text_of(data, size);
  if (flux2::s3_error_field(xml, "Code").size() > size + 16) flux2_fuzz::broken();
  const flux2::S3Listing listing = flux2::read_s3_listing(xml);
  size_t letters = listing.next.size();
  for (const flux2::Blob& object : listing.objects) {
    if (object.name.empty() || object.modified < 0) flux2_fuzz::broken();
    letters += object.name.size();
  }
  if (letters > size) flux2_fuzz::broken();
}
