#include <cstdlib>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "image/exif.h"
#include "tests/fuzz/target.h"

// Any block gives fields of valid UTF-8, which a block of our own can hold.
FUZZ_TARGET(exif) {
  using namespace flux2;
  const Exif exif = parse_exif(std::as_bytes(std::span(data, size)));
  for (const std::string* text : {&exif.make, &exif.software, &exif.comment})
    if (!is_utf8(*text)) std::abort();
  if (exif.orientation < 1 || exif.orientation > 8) std::abort();
  const Exif again = parse_exif(build_exif(exif));
  if (again.orientation != exif.orientation) std::abort();
}
