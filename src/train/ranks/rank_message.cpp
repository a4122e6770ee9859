#include "train/ranks/rank_message.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace flux2 {

namespace {

constexpr uint32_t kMagic = 0x32584C46;  // "FLX2"
constexpr size_t kMostText = 1 << 20;

// All ranks run the same program on machines of one byte order.
struct MessageHead {
  uint32_t magic = kMagic;
  uint32_t text_size = 0;
  uint64_t number = 0;
  int32_t rank = 0;
  uint8_t kind = 0;
  uint8_t padding[3] = {};
};
static_assert(sizeof(MessageHead) == 24);

}  // namespace

bool send_message(const TcpSocket& socket, const RankMessage& message, SteadyTime until) {
  MessageHead head;
  head.text_size = static_cast<uint32_t>(std::min(message.text.size(), kMostText));
  head.number = message.number;
  head.rank = message.rank;
  head.kind = static_cast<uint8_t>(message.kind);
  std::vector<std::byte> bytes(sizeof head + head.text_size);
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, message.text.data(), head.text_size);
  return socket.send_all(bytes, until);
}

bool MessageReader::receive(const TcpSocket& socket) {
  std::array<std::byte, 4096> buffer;
  for (;;) {
    const auto n = socket.receive_some(buffer);
    if (!n) return false;
    if (*n == 0) return true;
    bytes_.insert(bytes_.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*n));
    MessageHead head;
    std::memcpy(&head, bytes_.data(), std::min(bytes_.size(), sizeof head));
    if (bytes_.size() >= sizeof head && (head.magic != kMagic || head.text_size > kMostText)) return false;
    if (bytes_.size() > 4 * kMostText) return false;
  }
}

std::optional<RankMessage> MessageReader::next() {
  MessageHead head;
  if (bytes_.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes_.data(), sizeof head);
  if (head.magic != kMagic) bytes_.clear();
  if (bytes_.size() < sizeof head + head.text_size) return std::nullopt;
  RankMessage message{static_cast<RankMessage::Kind>(head.kind), head.rank, head.number, {}};
  message.text.assign(reinterpret_cast<const char*>(bytes_.data() + sizeof head), head.text_size);
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(sizeof head + head.text_size));
  return message;
}

}  // namespace flux2
