#include "base/error.h"

namespace flux2 {

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::Internal: return "Internal";
    case ErrorCode::InvalidArgument: return "InvalidArgument";
    case ErrorCode::NotFound: return "NotFound";
    case ErrorCode::BadFile: return "BadFile";
    case ErrorCode::Incompatible: return "Incompatible";
    case ErrorCode::OutOfMemory: return "OutOfMemory";
    case ErrorCode::Device: return "Device";
    case ErrorCode::CannotWrite: return "CannotWrite";
    case ErrorCode::Network: return "Network";
    case ErrorCode::Refused: return "Refused";
    case ErrorCode::Cancelled: return "Cancelled";
  }
  return "Unknown";
}

std::string Hint::spelled(const std::function<std::string(const Suggestion&)>& spell) const {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool slot = text[i] == '{' && i + 2 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9' && text[i + 2] == '}';
    const size_t index = slot ? static_cast<size_t>(text[i + 1] - '0') : suggestions.size();
    if (index < suggestions.size()) out += spell(suggestions[index]), i += 2;
    else out += text[i];
  }
  return out;
}

std::string Hint::plain() const {
  return spelled([](const Suggestion& s) { return s.value.empty() ? s.name : s.name + "=" + s.value; });
}

}  // namespace flux2
