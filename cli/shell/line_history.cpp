#include "cli/shell/line_history.h"

#include <fstream>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"

namespace flux2 {

namespace {

constexpr size_t kKept = 500;

}  // namespace

LineHistory::LineHistory(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code ignored;
  if (file_.empty() || !std::filesystem::is_regular_file(file_, ignored)) return;
  try {
    const std::string text = read_text_file(file_);
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      if (end > start) lines_.push_back(text.substr(start, end - start));
      start = end + 1;
    }
  } catch (const Error&) {
    // A history that cannot be read is no reason not to begin one.
  }
  if (lines_.size() <= kKept) return;
  lines_.erase(lines_.begin(), lines_.end() - static_cast<std::ptrdiff_t>(kKept));
  try {
    AtomicFile shorter(file_);
    for (const std::string& line : lines_) {
      shorter.write(line.data(), line.size());
      shorter.write("\n", 1);
    }
    shorter.commit();
  } catch (const Error&) {
    // A folder we may not write to: the file stays as it is.
  }
}

void LineHistory::add(const std::string& line) {
  if (line.empty() || (!lines_.empty() && lines_.back() == line)) return;
  lines_.push_back(line);
  if (lines_.size() > kKept) lines_.erase(lines_.begin());
  if (file_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(file_.parent_path(), ignored);
  std::ofstream(file_, std::ios::app) << line << '\n';
}

}  // namespace flux2
