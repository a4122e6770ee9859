#pragma once

#include <string>
#include <string_view>

struct sockaddr;

namespace flux2 {

// Whether an address belongs to the public internet: neither this machine nor its network, nor an address of a special purpose,
// nor an IPv6 form of such an IPv4 address. Anything that is not an IP address is not public.
bool is_public_address(const sockaddr* address);
bool is_public_address(std::string_view text);  // "192.0.2.1", "2001:db8::1"

std::string address_text(const sockaddr* address);

}  // namespace flux2
