#include "tests/support/fake_s3.h"

#include <fmt/format.h>

#include <ctime>

#include "net/url.h"

namespace flux2::test {

namespace {

Reply s3_error(int status, const std::string& code) {
  return {
      .status = status,
      .body = fmt::format("<?xml version=\"1.0\"?><Error><Code>{}</Code><Message>the words of {}</Message></Error>", code, code)};
}

std::string query_value(const std::string& target, const std::string& name) {
  for (size_t at = target.find('?'); at != target.npos; at = target.find('&', at + 1)) {
    const std::string_view rest = std::string_view(target).substr(at + 1);
    if (rest.starts_with(name + "=")) return url_unquoted(rest.substr(name.size() + 1, rest.find('&') - name.size() - 1));
  }
  return {};
}

}  // namespace

Reply FakeS3::answer(const ServedRequest& request) {
  const std::lock_guard lock(mutex_);
  const std::string signature = request.header("authorization");
  const bool is_signed = signature.starts_with("AWS4-HMAC-SHA256 Credential=the-key/") &&
                         signature.find("/eu-north-1/s3/aws4_request") != signature.npos &&
                         signature.find("Signature=") != signature.npos && !request.header("x-amz-date").empty();
  if (!is_signed) return s3_error(403, "AccessDenied");
  if (failures_ > 0) {
    --failures_;
    return s3_error(failure_, failure_ == 403 ? "SignatureDoesNotMatch" : "SlowDown");
  }
  const std::string bucket = "/images/";
  if (!request.target.starts_with(bucket)) return s3_error(404, "NoSuchBucket");
  const std::string key = request.target.substr(bucket.size());
  if (key.starts_with('?')) return list(key);
  if (request.method == "PUT") {
    char now[40] = "";
    const std::time_t time = std::time(nullptr);
    std::strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%S.000Z", std::gmtime(&time));
    objects_[key] = {.bytes = request.body, .type = request.header("content-type"), .modified = now};
    return {};
  }
  if (request.method == "DELETE") {
    objects_.erase(key);
    return {.status = 204};
  }
  const auto found = objects_.find(key);
  if (found == objects_.end()) return s3_error(404, "NoSuchKey");
  return {.headers = {{"Content-Type", found->second.type}}, .body = found->second.bytes};
}

Reply FakeS3::list(const std::string& target) const {
  const std::string prefix = query_value(target, "prefix"), from = query_value(target, "continuation-token");
  const size_t most = std::stoul(query_value(target, "max-keys"));
  std::string contents;
  size_t listed = 0;
  auto object = objects_.lower_bound(from.empty() ? prefix : from);
  for (; object != objects_.end() && object->first.starts_with(prefix) && listed < most; ++object, ++listed)
    contents +=
        fmt::format("<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>&quot;x&quot;</ETag><Size>{}</Size></Contents>",
                    object->first, object->second.modified, object->second.bytes.size());
  const bool more = object != objects_.end() && object->first.starts_with(prefix);
  return {
      .headers = {{"Content-Type", "application/xml"}},
      .body = fmt::format(
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
          "<Name>images</Name><Prefix>{}</Prefix><IsTruncated>{}</IsTruncated>{}{}</ListBucketResult>",
          prefix, more, contents, more ? fmt::format("<NextContinuationToken>{}</NextContinuationToken>", object->first) : "")};
}

}  // namespace flux2::test
