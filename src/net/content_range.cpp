#include "net/content_range.h"

#include <string>

namespace flux2 {

std::optional<uint64_t> decimal(std::string_view text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  return std::stoull(std::string(text));
}

ContentRange content_range(const HttpAnswer& answer) {
  const std::string header = answer.header("Content-Range").value_or("");
  std::string_view text = header;
  if (!text.starts_with("bytes ")) return {};
  text.remove_prefix(6);
  const size_t slash = text.find('/');
  return {decimal(text.substr(0, text.find('-'))), slash == text.npos ? std::nullopt : decimal(text.substr(slash + 1))};
}

std::optional<uint64_t> whole_size(const HttpAnswer& answer) {
  return answer.status == 206 ? content_range(answer).total : decimal(answer.header("Content-Length").value_or(""));
}

std::string bare_etag(std::string text) {
  if (text.starts_with("W/")) text.erase(0, 2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

}  // namespace flux2
