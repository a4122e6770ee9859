#pragma once

#include <string>

namespace flux2 {

// What the calls of one op cost while Stream::time_ops watched.
struct OpTime {
  std::string op;  // "swiglu"; products carry their shape: "linear 4608x3072x12288"
  int calls = 0;
  double seconds = 0;
  double flop = 0, bytes = 0;  // done and moved by all calls; 0 where the op does not say
};

}  // namespace flux2
