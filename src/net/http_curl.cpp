#include <curl/curl.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>

#include "base/error.h"
#include "base/sha256.h"
#include "base/text.h"
#include "net/http.h"
#include "net/public_address.h"
#include "net/url.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

struct FreeHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Handle = std::unique_ptr<CURL, FreeHandle>;
using HeaderList = std::unique_ptr<curl_slist, FreeList>;

// Initialised once per process and never cleaned up, because the library's functions for this are not thread-safe.
void start_library() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) fail(ErrorCode::Network, "the HTTP library does not start: {}", curl_easy_strerror(started));
}

// Failures that a retry cannot fix.
bool is_lasting(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_OUT_OF_MEMORY: return true;
    default: return false;
  }
}

// One request on its way: what libcurl's callbacks see.
class Exchange {
 public:
  Exchange(const HttpRequest& request, const HttpSink& sink) : request_(request), sink_(sink), last_byte_(Clock::now()) {
    answer_.url = request.url;
  }

  // Refuses connections to some addresses. This is where the library opens them, so that a name cannot resolve to one address
  // when it is checked and to another when it is used.
  void check_addresses(CURL* handle, const std::function<bool(const sockaddr*)>& allows) {
    allows_ = &allows;
    curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, &Exchange::on_open);
    curl_easy_setopt(handle, CURLOPT_OPENSOCKETDATA, this);
  }

  HttpAnswer run(CURL* handle) {
    char words[CURL_ERROR_SIZE] = "";
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, words);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &Exchange::on_header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, this);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &Exchange::on_body);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &Exchange::on_time);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, this);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    const CURLcode code = curl_easy_perform(handle);
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
    if (thrown_) std::rethrow_exception(thrown_);
    if (cancelled_) fail(ErrorCode::Cancelled, "the transfer was cancelled");
    if (code != CURLE_OK && !unwanted_) {
      answer_.failure = idle_ ? fmt::format("no data for {:g} s", request_.idle_timeout_s)
                              : std::string(*words ? words : curl_easy_strerror(code));
      answer_.transient = !is_lasting(code) && refused_.empty();
      if (!refused_.empty()) answer_.failure = fmt::format("the address {} is not allowed", refused_);
    }
    if (answer_.ok() && !begun_ && sink_.begin) sink_.begin(answer_);  // a body of no bytes
    return std::move(answer_);
  }

 private:
  static curl_socket_t on_open(void* self, curlsocktype, curl_sockaddr* to) {
    auto* exchange = static_cast<Exchange*>(self);
    if ((*exchange->allows_)(&to->addr)) return ::socket(to->family, to->socktype, to->protocol);
    exchange->refused_ = address_text(&to->addr);
    return CURL_SOCKET_BAD;
  }
  static size_t on_header(char* data, size_t, size_t size, void* self) {
    return static_cast<Exchange*>(self)->guarded(size, [&](Exchange& e) { return e.header({data, size}); });
  }
  static size_t on_body(char* data, size_t, size_t size, void* self) {
    return static_cast<Exchange*>(self)->guarded(size, [&](Exchange& e) { return e.body({data, size}); });
  }
  static int on_time(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t sent) {
    return static_cast<Exchange*>(self)->guarded(0, [&](Exchange& e) { return e.in_time(sent); }) != 0;
  }

  // Exceptions must not cross the C library: they are stored, and returning any number other than `size` ends the transfer.
  template <class F>
  size_t guarded(size_t size, F&& f) {
    try {
      return f(*this) ? size : size + 1;
    } catch (...) {
      thrown_ = std::current_exception();
      return size + 1;
    }
  }

  bool header(std::string_view line) {
    last_byte_ = Clock::now();
    line = trimmed(line);
    if (line.starts_with("HTTP/")) {  // also the beginning of the answer behind a proxy's or a 100
      answer_.headers.clear();
      const size_t blank = line.find(' ');
      answer_.status = blank == line.npos ? 0 : std::atoi(std::string(line.substr(blank + 1)).c_str());
      return true;
    }
    const size_t colon = line.find(':');
    if (colon == line.npos) return true;
    if (answer_.headers.size() == 512) fail(ErrorCode::Network, "{} answers with more than 512 headers", request_.url);
    answer_.headers.push_back({std::string(trimmed(line.substr(0, colon))), std::string(trimmed(line.substr(colon + 1)))});
    return true;
  }

  bool body(std::string_view bytes) {
    if (answer_.status >= 200 && answer_.status < 300 && (sink_.begin || sink_.data)) {
      if (!begun_) {
        begun_ = true;
        unwanted_ = sink_.begin && !sink_.begin(answer_);
      }
      if (unwanted_) return false;
      if (sink_.data) {
        sink_.data(std::as_bytes(std::span(bytes)));
        last_byte_ = Clock::now();  // a slow disk is not a silent server
        return true;
      }
    }
    last_byte_ = Clock::now();
    if (bytes.size() > request_.max_body - answer_.body.size())
      fail(ErrorCode::Network, "the answer of {} is longer than {} bytes", request_.url, request_.max_body);
    answer_.body += bytes;
    return true;
  }

  bool in_time(curl_off_t sent) {
    if (sent != sent_) last_byte_ = Clock::now();  // the server says nothing while it takes a long body
    sent_ = sent;
    cancelled_ = request_.cancelled && request_.cancelled();
    idle_ = std::chrono::duration<double>(Clock::now() - last_byte_).count() > request_.idle_timeout_s;
    return !cancelled_ && !idle_;
  }

  const HttpRequest& request_;
  const HttpSink& sink_;
  HttpAnswer answer_;
  Clock::time_point last_byte_;
  curl_off_t sent_ = 0;
  bool begun_ = false, unwanted_ = false, cancelled_ = false, idle_ = false;
  const std::function<bool(const sockaddr*)>* allows_ = nullptr;
  std::string refused_;  // the address that was not allowed
  std::exception_ptr thrown_;
};

void append_line(HeaderList& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  if (!longer) throw std::bad_alloc();
  static_cast<void>(list.release());
  list.reset(longer);
}

void append(HeaderList& list, const std::string& name, const std::string& value) {
  check(name.find_first_of("\r\n") == name.npos && value.find_first_of("\r\n") == value.npos, "the header {} holds a line end",
        name.substr(0, name.find_first_of("\r\n")));
  append_line(list, name + ": " + value);
}

}  // namespace

struct HttpClient::State {
  HttpSettings settings;
  std::mutex mutex;
  std::vector<Handle> idle;  // each with the connections it holds open

  Handle take() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return Handle(curl_easy_init());
    Handle handle = std::move(idle.back());
    idle.pop_back();
    return handle;
  }
  void give_back(Handle handle) {
    curl_easy_reset(handle.get());  // the connections stay
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(handle));
  }
};

HttpClient::HttpClient(HttpSettings settings) : state_(std::make_unique<State>()) {
  start_library();
  state_->settings = std::move(settings);
}
HttpClient::~HttpClient() = default;

bool HttpClient::available() { return true; }

HttpAnswer HttpClient::send(const HttpRequest& request, const HttpSink& sink) const {
  const Url url = parse_url(request.url);
  const HttpSettings& s = state_->settings;
  Handle handle = state_->take();
  if (!handle) throw std::bad_alloc();
  CURL* c = handle.get();
  const auto set_text = [&](CURLoption option, const std::string& text) {
    if (!text.empty()) curl_easy_setopt(c, option, text.c_str());
  };
  const std::string address = url.text(), proxy = s.allows_address ? "" : url.secure() ? s.https_proxy : s.http_proxy;
  curl_easy_setopt(c, CURLOPT_URL, address.c_str());
  curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
  // Parallel ranges use separate connections instead of sharing one HTTP/2 connection.
  curl_easy_setopt(c, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 128L << 10);
  curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(s.connect_timeout_s * 1000));
  curl_easy_setopt(c, CURLOPT_PROXY, proxy.c_str());  // set even if empty, so that the library ignores the environment
  curl_easy_setopt(c, CURLOPT_NOPROXY, s.no_proxy.c_str());
  set_text(CURLOPT_CAINFO, s.ca_file);
  set_text(CURLOPT_CAPATH, s.ca_folder);
  set_text(CURLOPT_USERAGENT, s.user_agent);
  if (request.method == "HEAD") {
    curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
  } else if (request.method == "POST" || request.method == "PUT" || request.method == "PATCH") {
    if (request.method != "POST") curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, request.method.c_str());  // give_back() resets it
    curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, request.body.c_str());
  } else if (request.method == "DELETE") {
    curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, "DELETE");
  } else {
    require(request.method == "GET", "the HTTP client has no method {}", request.method);
    curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
  }
  HeaderList headers;
  for (const HttpHeader& h : request.headers) append(headers, h.name, h.value);
  if (request.method == "PUT" && request.signer) {
    // The library signs the lines below as if they were sent. So it does say "Expect", but does not wait.
    curl_easy_setopt(c, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
  } else if (request.method == "PUT") {
    // Without these lines the library says that the body is a form, and waits a second for servers that ignore "Expect". A type
    // given above stays.
    append_line(headers, "Content-Type:");
    append_line(headers, "Expect:");
  }
  if (!request.token.empty() && (url.secure() || url.loopback())) append(headers, "Authorization", "Bearer " + request.token);
  if (const AwsSigner* signer = request.signer) {
    curl_easy_setopt(c, CURLOPT_AWS_SIGV4, ("aws:amz:" + signer->region + ":" + signer->service).c_str());
    curl_easy_setopt(c, CURLOPT_USERNAME, signer->access_key.c_str());
    curl_easy_setopt(c, CURLOPT_PASSWORD, signer->secret_key.c_str());
    // Not every version of the library sends this header, which the stores need.
    const bool has_body = request.method == "PUT" || request.method == "POST";
    append(headers, "x-amz-content-sha256",
           sha256(has_body ? std::as_bytes(std::span(request.body)) : std::span<const std::byte>()));
    if (!signer->session_token.empty()) append(headers, "x-amz-security-token", signer->session_token);
  }
  curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers.get());
  Exchange exchange(request, sink);
  if (s.allows_address) exchange.check_addresses(c, s.allows_address);
  HttpAnswer answer = exchange.run(c);
  state_->give_back(std::move(handle));
  return answer;
}

}  // namespace flux2
