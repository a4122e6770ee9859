#include "train/log/text_lines.h"

#include <string>

#include "base/file_hash.h"

namespace flux2 {

void read_lines(const std::filesystem::path& path, const std::function<void(std::string_view line)>& take) {
  constexpr size_t kLongest = size_t{16} << 20;
  std::string begun;
  bool too_long = false;
  read_pieces(path, [&](std::span<const std::byte> piece) {
    std::string_view text(reinterpret_cast<const char*>(piece.data()), piece.size());
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view part = text.substr(0, end);
      too_long = too_long || begun.size() + part.size() > kLongest;
      if (!too_long) begun += part;
      if (end == text.npos) return;
      if (!too_long) take(begun);
      begun.clear();
      too_long = false;
      text.remove_prefix(end + 1);
    }
  });
}

}  // namespace flux2
