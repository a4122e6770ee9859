#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "net/http.h"

namespace flux2 {

// A part of an S3-compatible store, and the keys to it.
struct S3Place {
  std::string bucket, prefix;  // prefix: empty, or "images/" with a slash at its end
  std::string endpoint;        // "https://host:port" of a store that is not Amazon's; empty: Amazon's
  AwsSigner signer;

  std::string text() const { return "s3://" + bucket + (prefix.empty() ? "" : "/" + prefix.substr(0, prefix.size() - 1)); }
  std::string url() const;                            // of the bucket, without a slash at its end
  std::string url_of(const std::string& key) const;   // of an object
  std::string name_of(const std::string& key) const;  // "s3://bucket/key", for messages
};

bool is_s3_place(std::string_view text);  // begins with "s3://"

// "s3://bucket/prefix" with the keys, region and address of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
// AWS_REGION or AWS_DEFAULT_REGION, and AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
S3Place s3_place(std::string_view text, const std::function<const char*(const char*)>& environment);

}  // namespace flux2
