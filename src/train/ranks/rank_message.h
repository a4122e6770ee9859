#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/ranks/tcp_socket.h"

namespace flux2 {

// What ranks tell each other beside the data: a length, a kind, the rank it is about, a number and a text.
struct RankMessage {
  enum class Kind : uint8_t {
    Hello,    // number: size of the group; text: token and port of the data listener
    Welcome,  // text: addresses and ports of all data listeners
    Reject,   // text: why
    Beat,     // number: operations begun
    Failed,   // the rank failed; text: what everybody reports
    Left,     // the rank has ended in good order; number: operations it took part in
  };
  Kind kind = Kind::Beat;
  int32_t rank = 0;
  uint64_t number = 0;
  std::string text = {};
};

bool send_message(const TcpSocket& socket, const RankMessage& message, SteadyTime until);

// Collects bytes until messages are complete.
class MessageReader {
 public:
  // Reads what has arrived. False if the connection has ended, or if what arrives is not ours.
  bool receive(const TcpSocket& socket);
  std::optional<RankMessage> next();

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace flux2
