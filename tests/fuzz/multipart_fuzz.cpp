#include <filesystem>
#include <string>

#include "base/error.h"
#include "server/http/multipart.h"
#include "tests/fuzz/target.h"

namespace {

std::string parts_text(const std::vector<flux2::FormPart>& parts) {
  std::string out;
  for (const auto& part : parts)
    out += part.name + '\0' + part.file_name + '\0' + part.content_type + '\0' + part.data + '\0' + (part.is_file ? "f" : "t");
  return out;
}

std::string form_read(std::string_view form, size_t piece) {
  flux2::FormReader reader("b", {.parts = 8, .part_in_memory = 1 << 20}, std::filesystem::temp_directory_path());
  try {
    for (size_t i = 0; i < form.size(); i += piece) reader.add(form.substr(i, piece));
    return parts_text(reader.finish());
  } catch (const flux2::Error&) {
    return "refused";
  }
}

}  // namespace

// However a form is cut into pieces, the same parts come out, or it is refused.
FUZZ_TARGET(multipart) {
  const std::string_view text = flux2_fuzz::text_of(data, size);
  if (text.size() > 1 << 16) return;
  const std::string whole = form_read(text, text.size() + 1);
  if (form_read(text, 1) != whole || form_read(text, 3) != whole || form_read(text, 17) != whole) flux2_fuzz::broken();
  flux2::form_boundary(text);
  flux2::form_boundary("multipart/form-data;" + std::string(text));
}
