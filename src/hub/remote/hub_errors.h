#pragma once

#include <string>

#include "net/http.h"

namespace flux2 {

// What the hub was asked for, for the sentence about its refusal.
struct HubQuestion {
  std::string endpoint, repository, revision;
  std::string path;   // empty: the repository itself
  std::string token;  // that was sent; empty: none. Never shown
};

// The file is not in the repository (and not: the repository or revision does not exist).
bool is_entry_missing(const HttpAnswer& answer);

// An answer that is neither the thing asked for nor worth another try, as an Error with what to do: NotFound for
// repositories, revisions and files, Network for all that has to do with access.
[[noreturn]] void fail_hub(const HttpAnswer& answer, const HubQuestion& question);

}  // namespace flux2
