#include "text/text_stream.h"

#include <algorithm>

namespace flux2 {

std::string TextStream::add(int32_t id) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  constexpr int kLongestTail = 3;  // bytes of a character whose last byte is missing
  ids_.push_back(id);
  const std::string all = text();
  size_t end = all.size();
  for (int i = 0; i < kLongestTail && std::string_view(all).substr(0, end).ends_with(kReplacement); ++i)
    end -= kReplacement.size();
  if (end <= shown_) return {};
  std::string fresh = all.substr(shown_, end - shown_);
  shown_ = end;
  return fresh;
}

}  // namespace flux2
