#include "net/public_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace flux2 {

namespace {

struct Network4 {
  uint32_t address;
  int bits;
};

constexpr uint32_t ip4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return a << 24 | b << 16 | c << 8 | d; }

// The registry of special-purpose addresses (RFC 6890 and its successors).
constexpr Network4 kNotPublic4[] = {
    {ip4(0, 0, 0, 0), 8},        // "this network"
    {ip4(10, 0, 0, 0), 8},       // private
    {ip4(100, 64, 0, 0), 10},    // shared by the customers of a provider
    {ip4(127, 0, 0, 0), 8},      // loopback
    {ip4(169, 254, 0, 0), 16},   // link-local; clouds answer with secrets here
    {ip4(172, 16, 0, 0), 12},    // private
    {ip4(192, 0, 0, 0), 24},     // protocol assignments
    {ip4(192, 0, 2, 0), 24},     // documentation
    {ip4(192, 88, 99, 0), 24},   // 6to4 relays
    {ip4(192, 168, 0, 0), 16},   // private
    {ip4(198, 18, 0, 0), 15},    // benchmarks
    {ip4(198, 51, 100, 0), 24},  // documentation
    {ip4(203, 0, 113, 0), 24},   // documentation
    {ip4(224, 0, 0, 0), 4},      // multicast
    {ip4(240, 0, 0, 0), 4},      // reserved, broadcast
};

bool is_public4(uint32_t address) {
  for (const Network4& network : kNotPublic4)
    if ((address ^ network.address) >> (32 - network.bits) == 0) return false;
  return true;
}

using Bytes16 = std::array<uint8_t, 16>;

bool begins_with(const Bytes16& address, const Bytes16& network, int bits) {
  for (int i = 0; i < bits; ++i) {
    const auto byte = static_cast<size_t>(i / 8);
    if (((address[byte] ^ network[byte]) >> (7 - i % 8) & 1) != 0) return false;
  }
  return true;
}

uint32_t ip4_at(const Bytes16& address, size_t at) { return ip4(address[at], address[at + 1], address[at + 2], address[at + 3]); }

bool is_public6(const Bytes16& a) {
  constexpr Bytes16 mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, nat64 = {0, 0x64, 0xff, 0x9b},
                    six_to_four = {0x20, 0x02};
  if (begins_with(a, mapped, 96) || begins_with(a, nat64, 96)) return is_public4(ip4_at(a, 12));
  if (begins_with(a, six_to_four, 16)) return is_public4(ip4_at(a, 2));
  // What is handed out lies in 2000::/3. Everything else is loopback, unspecified, link-local, unique-local, multicast, local
  // NAT64 (64:ff9b:1::/48), discard-only or not assigned.
  constexpr Bytes16 unicast = {0x20};
  if (!begins_with(a, unicast, 3)) return false;
  constexpr Bytes16 assignments = {0x20, 0x01}, documentation = {0x20, 0x01, 0x0d, 0xb8}, newer = {0x3f, 0xff};
  return !begins_with(a, assignments, 23)       // protocol assignments: Teredo, ORCHID, benchmarks
         && !begins_with(a, documentation, 32)  //
         && !begins_with(a, newer, 20);         // documentation as well
}

}  // namespace

bool is_public_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    return is_public4(ntohl(in.sin_addr.s_addr));
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    Bytes16 bytes;
    std::memcpy(bytes.data(), &in.sin6_addr, bytes.size());
    return is_public6(bytes);
  }
  return false;
}

bool is_public_address(std::string_view text) {
  const std::string copy(text);
  in_addr four{};
  if (::inet_pton(AF_INET, copy.c_str(), &four) == 1) return is_public4(ntohl(four.s_addr));
  Bytes16 six{};
  return ::inet_pton(AF_INET6, copy.c_str(), six.data()) == 1 && is_public6(six);
}

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "this";
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
  }
  return text;
}

}  // namespace flux2
