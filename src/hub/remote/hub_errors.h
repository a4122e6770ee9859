#pragma once

#include <string>

#include "net/http.h"

namespace flux2 {

// What the hub was asked for, for error messages.
struct HubQuestion {
  std::string endpoint, repository, revision;
  std::string path;   // empty: the repository itself
  std::string token;  // that was sent; empty: none. Never shown
};

// Whether the file is not in the repository (as opposed to: the repository or revision does not exist).
bool is_entry_missing(const HttpAnswer& answer);

// Throws an Error for an answer that is a failure and not worth retrying, with a hint: NotFound for repositories, revisions and
// files, Network for everything that concerns access.
[[noreturn]] void fail_hub(const HttpAnswer& answer, const HubQuestion& question);

}  // namespace flux2
