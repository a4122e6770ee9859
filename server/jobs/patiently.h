#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "server/store/sql.h"

namespace flux2 {

// A result waits for the database longer than one call does: it took work to make. `ends` is asked while the database is away;
// if it is true, nobody waits any longer.
template <class Call>
auto patiently(Call&& call, const std::function<bool()>& ends = {}) {
  constexpr auto kPatience = std::chrono::minutes(10);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    try {
      return call();
    } catch (const DatabaseAway&) {
      if (std::chrono::steady_clock::now() > until || (ends && ends())) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace flux2
