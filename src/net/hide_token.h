#pragma once

#include <string>

#include "base/error.h"

namespace flux2 {

// A text with "(token)" wherever it contains the token. An empty token hides nothing.
std::string hide_token(std::string text, const std::string& token);

// The error, with the token hidden in its sentence and its hint.
Error without_token(const Error& error, const std::string& token);

// Runs f. An Error that it throws is rethrown without the token: a server may put what we sent it into any part of its answer,
// and messages quote names, addresses and sentences of servers.
template <class F>
auto hiding_token(const std::string& token, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& e) {
    throw without_token(e, token);
  }
}

}  // namespace flux2
