#include "net/public_address.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(PublicAddress, OnlyThePublicInternet) {
  struct Case {
    const char* address;
    bool is_public;
  };
  const Case cases[] = {
      {"8.8.8.8", true},
      {"1.1.1.1", true},
      {"223.255.255.255", true},
      {"100.63.255.255", true},
      {"100.128.0.0", true},
      {"172.15.255.255", true},
      {"172.32.0.0", true},
      {"192.167.255.255", true},
      {"198.17.255.255", true},
      {"198.20.0.0", true},
      {"0.0.0.0", false},
      {"0.1.2.3", false},
      {"10.0.0.1", false},
      {"10.255.255.255", false},
      {"100.64.0.1", false},
      {"100.127.255.255", false},
      {"127.0.0.1", false},
      {"127.255.255.254", false},
      {"169.254.169.254", false},
      {"172.16.0.1", false},
      {"172.31.255.255", false},
      {"192.0.0.8", false},
      {"192.0.2.1", false},
      {"192.88.99.1", false},
      {"192.168.0.1", false},
      {"198.18.0.1", false},
      {"198.19.255.255", false},
      {"198.51.100.1", false},
      {"203.0.113.1", false},
      {"224.0.0.1", false},
      {"239.255.255.255", false},
      {"240.0.0.1", false},
      {"255.255.255.255", false},
      {"2606:4700:4700::1111", true},
      {"2001:4860:4860::8888", true},
      {"::ffff:8.8.8.8", true},
      {"64:ff9b::8.8.8.8", true},
      {"::", false},
      {"::1", false},
      {"::ffff:127.0.0.1", false},
      {"::ffff:10.0.0.1", false},
      {"::ffff:169.254.169.254", false},
      {"::127.0.0.1", false},
      {"64:ff9b::7f00:1", false},
      {"64:ff9b::10.0.0.1", false},
      {"64:ff9b:1::8.8.8.8", false},
      {"2002:7f00:1::", false},
      {"2002:a00:1::1", false},
      {"2002:808:808::1", true},
      {"100::1", false},
      {"2001::1", false},
      {"2001:2::1", false},
      {"2001:db8::1", false},
      {"3fff::1", false},
      {"5f00::1", false},
      {"fc00::1", false},
      {"fdff::1", false},
      {"fe80::1", false},
      {"fec0::1", false},
      {"ff02::1", false},
      {"", false},
      {"localhost", false},
      {"8.8.8", false},
      {"8.8.8.8.8", false},
      {"0177.0.0.1", false},
      {"fe80::1%eth0", false},
  };
  for (const Case& c : cases) EXPECT_EQ(is_public_address(c.address), c.is_public) << c.address;
}

}  // namespace
}  // namespace flux2
