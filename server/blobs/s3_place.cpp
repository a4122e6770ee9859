#include "server/blobs/s3_place.h"

#include <fmt/format.h>

#include "base/error.h"
#include "net/url.h"

namespace flux2 {

namespace {

constexpr std::string_view kScheme = "s3://";
constexpr const char* kDefaultRegion = "us-east-1";

bool is_bucket_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789.-";
  return name.size() >= 3 && name.size() <= 63 && name.find_first_not_of(kAllowed) == name.npos && name.find("..") == name.npos &&
         !name.starts_with('.') && !name.starts_with('-') && !name.ends_with('.') && !name.ends_with('-');
}

// Letters that need no escapes in URLs, so that every server computes the same signature.
bool is_plain_prefix(std::string_view prefix) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
  const std::string path = fmt::format("/{}/", prefix);
  return prefix.size() <= 512 && prefix.find_first_not_of(kAllowed) == prefix.npos && path.find("//") == path.npos &&
         path.find("/./") == path.npos && path.find("/../") == path.npos;
}

}  // namespace

bool is_s3_place(std::string_view text) { return text.starts_with(kScheme); }

S3Place s3_place(std::string_view text, const std::function<const char*(const char*)>& environment) {
  const auto first = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const char* value = environment ? environment(name) : nullptr; value && *value) return std::string(value);
    return std::string();
  };
  check(is_s3_place(text), "\"{}\" is not the address of an S3 bucket: it begins with s3://", std::string(text));
  text.remove_prefix(kScheme.size());
  const size_t slash = text.find('/');
  S3Place place;
  place.bucket = text.substr(0, slash);
  std::string_view prefix = slash == text.npos ? std::string_view() : text.substr(slash + 1);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  check(is_bucket_name(place.bucket),
        "\"{}\" is not the name of an S3 bucket: 3 to 63 lower-case letters, digits, \".\" and \"-\"", place.bucket);
  check(prefix.empty() || is_plain_prefix(prefix),
        "the folder \"{}\" of the bucket may have only letters, digits, \"/\", \".\", \"_\" and \"-\"", std::string(prefix));
  if (!prefix.empty()) place.prefix = std::string(prefix) + "/";

  place.endpoint = first({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  while (place.endpoint.ends_with('/')) place.endpoint.pop_back();
  if (!place.endpoint.empty())
    in_context("AWS_ENDPOINT_URL", [&] {
      const Url url = parse_url(place.endpoint);
      check(url.target == "/", "{} must be the address of a server, without a path", place.endpoint);
    });
  place.signer.access_key = first({"AWS_ACCESS_KEY_ID"});
  place.signer.secret_key = first({"AWS_SECRET_ACCESS_KEY"});
  place.signer.session_token = first({"AWS_SESSION_TOKEN"});
  place.signer.region = first({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (place.signer.region.empty()) place.signer.region = kDefaultRegion;
  if (place.signer.access_key.empty() || place.signer.secret_key.empty())
    throw Error(ErrorCode::InvalidArgument, fmt::format("no keys are set for {}", place.text()),
                "set the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  return place;
}

// Amazon wants the bucket in the host name; other servers and names with dots, which no certificate covers, in the path.
std::string S3Place::url() const {
  if (!endpoint.empty()) return endpoint + "/" + bucket;
  if (bucket.find('.') != bucket.npos) return fmt::format("https://s3.{}.amazonaws.com/{}", signer.region, bucket);
  return fmt::format("https://{}.s3.{}.amazonaws.com", bucket, signer.region);
}

std::string S3Place::url_of(const std::string& key) const { return url() + "/" + url_quoted_path(key); }

std::string S3Place::name_of(const std::string& key) const { return fmt::format("s3://{}/{}", bucket, key); }

}  // namespace flux2
