#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "record/picture_metadata.h"
#include "record/xmp.h"
#include "tests/fuzz/target.h"

// What other programs write into images about how they were made. The first byte says where the text stands: our own record,
// InvokeAI, A1111, ComfyUI, an XMP packet or an EXIF comment. Whatever is found can be written in every dialect again.
FUZZ_TARGET(metadata) {
  using namespace flux2;
  if (size == 0) return;
  const std::string text(flux2_fuzz::text_of(data + 1, size - 1));
  ImageMetadata metadata;
  const char* const keys[] = {"flux2", "invokeai_metadata", "parameters", "prompt"};
  if (const unsigned place = data[0] % 6; place < 4) metadata.text = {{keys[place], text}};
  else if (place == 4) metadata.xmp = text;
  else metadata.exif_comment = text;
  says_generated(metadata.xmp);
  const auto found = find_record(metadata);
  if (!found) return;
  to_json(found->record).dump(-1, ' ', false, Json::error_handler_t::replace);
  for (const ImageFormat format : {ImageFormat::Png, ImageFormat::Jpeg})
    picture_metadata(found->record, {.a1111 = true, .json = true, .comfy = true}, format);
}
