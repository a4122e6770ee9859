#include "hub/registered.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace flux2 {

namespace {

bool begins_with(std::string_view text, std::string_view beginning) {
  return text.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), text.begin(),
                    [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
}

}  // namespace

const RegisteredPart* RegisteredParts::find_exact(std::string_view name, ComponentKind kind) const {
  for (const RegisteredPart* part : of(kind))
    if (part->key == name || (part->name.size() == name.size() && begins_with(part->name, name))) return part;
  return nullptr;
}

const RegisteredPart* RegisteredParts::find(std::string_view name, ComponentKind kind) const {
  if (name.empty()) return nullptr;
  if (const RegisteredPart* exact = find_exact(name, kind)) return exact;
  std::vector<const RegisteredPart*> candidates;
  for (const RegisteredPart* part : of(kind))
    if (begins_with(part->name, name)) candidates.push_back(part);
  if (candidates.empty()) return nullptr;
  if (candidates.size() == 1) return candidates[0];
  std::vector<std::string> found;
  for (const RegisteredPart* part : candidates) found.push_back(part->name);
  throw Error(ErrorCode::InvalidArgument, fmt::format("\"{}\" is ambiguous: {}", name, fmt::join(found, ", ")),
              Hint("give the full name, or the key shown by {0}", {run_command("models list")}));
}

std::vector<const RegisteredPart*> RegisteredParts::of(ComponentKind kind) const {
  std::vector<const RegisteredPart*> found;
  for (const RegisteredPart& part : parts_)
    if (part.kind == kind) found.push_back(&part);
  return found;
}

std::vector<std::string> RegisteredParts::names(ComponentKind kind) const {
  std::vector<std::string> list;
  for (const RegisteredPart* part : of(kind)) list.push_back(part->name);
  return list;
}

}  // namespace flux2
