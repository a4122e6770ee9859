#include "server/blobs/s3_blobs.h"

#include <fmt/format.h>

#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "hub/remote/retry.h"
#include "net/url.h"
#include "server/blobs/blob_cache.h"
#include "server/blobs/s3_listing.h"

namespace flux2 {

namespace {

constexpr size_t kLargestListing = 16 << 20;
constexpr double kSilence = 20;  // seconds

// What a refused request means and what to do about it. `what` names the object or the bucket.
[[noreturn]] void throw_refusal(const S3Place& place, const HttpAnswer& answer, const std::string& what) {
  const std::string code = s3_error_field(answer.body, "Code"), message = s3_error_field(answer.body, "Message");
  const std::string said = code.empty() ? fmt::format("status {}", answer.status) : fmt::format("{} ({})", code, message);
  const std::string at = place.endpoint.empty() ? "Amazon S3" : place.endpoint;
  if (code == "RequestTimeTooSkewed")
    throw Error(ErrorCode::Network, fmt::format("{}: the clocks of this machine and of {} differ", what, at),
                "set the clock of this machine");
  if (code == "NoSuchBucket" || (answer.status == 404 && code != "NoSuchKey"))
    throw Error(ErrorCode::NotFound, fmt::format("bucket \"{}\" not found at {}", place.bucket, at),
                "create the bucket, or correct its name, AWS_REGION or AWS_ENDPOINT_URL");
  if (answer.status == 301 || answer.status == 307 || code == "AuthorizationHeaderMalformed") {
    const std::string region = printable(answer.header("x-amz-bucket-region").value_or(""));
    throw Error(ErrorCode::Network, fmt::format("the bucket \"{}\" is not in region {}", place.bucket, place.signer.region),
                region.empty() ? Hint("set AWS_REGION to the region of the bucket") : Hint("set AWS_REGION=" + region));
  }
  if (answer.status == 401 || answer.status == 403)
    throw Error(ErrorCode::Network, fmt::format("{}: {} refuses access: {}", what, at, said),
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and what this key may do with the bucket");
  throw Error(ErrorCode::Network, fmt::format("{}: {} answered {}", what, at, said));
}

class S3Blobs : public BlobStore {
 public:
  explicit S3Blobs(S3Options options)
      : options_(std::move(options)), client_(options_.http), cache_(options_.cache, options_.cache_bytes) {
    list_page(place_.prefix, "", 1);  // wrong keys and names are reported at the start
  }

  void put(const std::string& name, std::span<const std::byte> bytes, const std::string& mime) override {
    HttpRequest request = request_for("PUT", name);
    request.headers.push_back({"content-type", mime});
    request.body.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const HttpAnswer answer = send(request, in_words_of(name));
    if (!answer.ok()) throw_refusal(place_, answer, in_words_of(name));
    const auto copy = cache_.draft(name);  // it is likely to be asked for soon
    copy->write(bytes);
    copy->commit();
    cache_.added(bytes.size());
  }

  std::optional<std::filesystem::path> fetch(const std::string& name) override {
    if (auto path = cache_.find(name)) return path;
    std::unique_ptr<DraftFile> copy;
    HttpSink sink;
    sink.begin = [&](const HttpAnswer&) {  // once for each attempt
      copy = cache_.draft(name);
      return true;
    };
    sink.data = [&](std::span<const std::byte> part) { copy->write(part); };
    const HttpAnswer answer = send(request_for("GET", name), in_words_of(name), sink);
    if (is_missing(answer)) return std::nullopt;
    if (!answer.ok()) throw_refusal(place_, answer, in_words_of(name));
    copy->commit();
    cache_.added(copy->size());
    auto path = cache_.find(name);
    if (!path) fail(ErrorCode::CannotWrite, "the local copy of {} was removed from {}", name, options_.cache.string());
    return path;
  }

  bool exists(const std::string& name) override {
    const HttpAnswer answer = send(request_for("HEAD", name), in_words_of(name));
    if (answer.status == 404) return false;  // there is no body that could tell a missing bucket
    if (!answer.ok()) throw_refusal(place_, answer, in_words_of(name));
    return true;
  }

  void remove(const std::string& name) override {
    cache_.remove(name);
    const HttpAnswer answer = send(request_for("DELETE", name), in_words_of(name));
    if (!answer.ok() && !is_missing(answer)) throw_refusal(place_, answer, in_words_of(name));
  }

  void list(const std::string& folder, const Page& page) override {
    check_blob_name(folder);
    const std::string prefix = place_.prefix + folder + "/";
    std::string next;
    do {
      S3Listing listing = list_page(prefix, next, options_.page);
      for (Blob& object : listing.objects) {
        if (!object.name.starts_with(prefix)) fail(ErrorCode::BadFile, "{} lists objects that were not asked for", place_.text());
        object.name.erase(0, place_.prefix.size());
      }
      std::erase_if(listing.objects, [](const Blob& object) { return object.name.ends_with('/'); });  // "folders" of other tools
      if (!listing.objects.empty()) page(listing.objects);
      if (!listing.next.empty() && listing.next == next)
        fail(ErrorCode::BadFile, "{} repeats a page of its listing", place_.text());
      next = std::move(listing.next);
    } while (!next.empty());
  }

  int tidy(std::chrono::seconds) override {
    cache_.trim();
    return 0;  // an object exists completely or not at all
  }

  std::string where() const override { return place_.text(); }

 private:
  std::string in_words_of(const std::string& name) const { return place_.name_of(place_.prefix + name); }

  HttpRequest request_for(const char* method, const std::string& name) const {
    check_blob_name(name);
    HttpRequest request;
    request.method = method;
    request.url = place_.url_of(place_.prefix + name);
    request.signer = &place_.signer;
    request.idle_timeout_s = kSilence;
    return request;
  }

  static bool is_missing(const HttpAnswer& answer) {
    return answer.status == 404 && s3_error_field(answer.body, "Code") != "NoSuchBucket";
  }

  S3Listing list_page(const std::string& prefix, const std::string& from, int objects) const {
    HttpRequest request;
    request.url = place_.url() + "/?";
    if (!from.empty()) request.url += "continuation-token=" + url_quoted(from) + "&";  // in the order of the alphabet
    request.url += fmt::format("list-type=2&max-keys={}&prefix={}", objects, url_quoted(prefix));
    request.signer = &place_.signer;
    request.idle_timeout_s = kSilence;
    request.max_body = kLargestListing;
    const HttpAnswer answer = send(request, place_.text());
    if (!answer.ok()) throw_refusal(place_, answer, place_.text());
    return in_context(place_.text(), [&] { return read_s3_listing(answer.body); });
  }

  // Sends a request until there is an answer that another attempt would not change.
  HttpAnswer send(const HttpRequest& request, const std::string& what, const HttpSink& sink = {}) const {
    auto pause = options_.first_pause;
    for (int attempt = 1;; ++attempt, pause *= 2) {
      HttpAnswer answer = client_.send(request, sink);
      const bool again = is_worth_retrying(answer);
      if (!again && !answer.failed()) return answer;
      if (!again || attempt >= options_.tries)
        throw Error(ErrorCode::Network, fmt::format("{}: {}", what, in_words(answer)),
                    place_.endpoint.empty() ? Hint("check the network and AWS_REGION")
                                            : Hint("check the network and AWS_ENDPOINT_URL (" + place_.endpoint + ")"));
      options_.log.debug("{}: {}; trying again in {} ms", what, in_words(answer), pause.count());
      std::this_thread::sleep_for(pause);
    }
  }

  S3Options options_;
  const S3Place& place_ = options_.place;
  HttpClient client_;
  BlobCache cache_;
};

}  // namespace

std::unique_ptr<BlobStore> open_s3_blobs(S3Options options) {
  if (!HttpClient::available())
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("this build has no HTTP client, so it cannot use {}", options.place.text()),
                "rebuild with libcurl, or keep the images in a folder");
  return std::make_unique<S3Blobs>(std::move(options));
}

}  // namespace flux2
