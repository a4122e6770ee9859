#include "server/http/listener.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <thread>
#include <vector>

#include "base/error.h"
#include "base/start_thread.h"
#include "server/http/connection.h"
#include "server/http/multipart.h"
#include "server/http/server_core.h"

namespace flux2 {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using Unix = asio::local::stream_protocol;

constexpr const char* kFull =
    "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 5\r\n\r\n";

// Each connection is a file of the process; the usual limit of 1024 is lower than ours.
void raise_file_limit(size_t connections) {
  rlimit limit{};
  const rlim_t wanted = connections + 512;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

[[noreturn]] void cannot_listen(const std::string& address, const error_code& error, Hint hint = {}) {
  throw Error(ErrorCode::CannotWrite, fmt::format("cannot listen on {}: {}", address, error.message()), std::move(hint));
}

std::string address_of(const Tcp::endpoint& endpoint) {
  const asio::ip::address address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}
std::string address_of(const Unix::endpoint&) { return {}; }

void set_options(asio::basic_stream_socket<Tcp, Strand>& socket) {
  error_code ignored;
  socket.set_option(Tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);  // a client whose machine is off leaves in the end
}
void set_options(asio::basic_stream_socket<Unix, Strand>&) {}

// A socket file that nobody listens to is left over from a process that was killed.
void remove_stale_socket(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_socket(std::filesystem::symlink_status(path, ignored))) return;
  asio::io_context io;
  Unix::socket probe(io);
  error_code error;
  probe.connect(Unix::endpoint(path.string()), error);
  if (error == asio::error::connection_refused) std::filesystem::remove(path, ignored);
}

}  // namespace

class HttpListener::Impl {
 public:
  Impl(ListenOptions options, Admit admit, Handle handle)
      : core_(std::make_shared<ServerCore>(std::move(options), std::move(admit), std::move(handle))),
        strand_(asio::make_strand(core_->io)) {}

  void start();
  void stop(std::chrono::milliseconds grace);
  std::string url() const;

  std::shared_ptr<ServerCore> core_;
  Strand strand_;  // of the acceptors
  int port_ = 0;

 private:
  void listen_tcp();
  void listen_unix();
  template <class Acceptor>
  void accept_next(Acceptor& acceptor);
  template <class Acceptor>
  using Accepted = asio::basic_stream_socket<typename Acceptor::protocol_type, Strand>;
  template <class Acceptor>
  void take(Acceptor& acceptor, error_code error, Accepted<Acceptor> socket);
  void run_loops();

  std::vector<std::unique_ptr<Tcp::acceptor>> tcp_;
  std::unique_ptr<Unix::acceptor> unix_;
  std::vector<std::jthread> io_threads_, pool_threads_;
  bool started_ = false, stopped_ = false;
};

void HttpListener::Impl::listen_tcp() {
  const ListenOptions& options = core_->options;
  port_ = options.port;
  error_code error;
  Tcp::resolver resolver(core_->io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      Tcp::resolver::passive | Tcp::resolver::numeric_service, error);
  const std::string name = fmt::format("{}:{}", options.host, options.port);
  if (error) cannot_listen(name, error, Hint("give an address of this machine with {0}", {set_option("host")}));
  error_code first_error;
  for (const auto& entry : found) {  // "localhost" is two addresses
    Tcp::endpoint endpoint = entry.endpoint();
    endpoint.port(static_cast<unsigned short>(port_));
    auto acceptor = std::make_unique<Tcp::acceptor>(strand_);
    acceptor->open(endpoint.protocol(), error);
    if (!error) acceptor->set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error && endpoint.protocol() == Tcp::v6()) acceptor->set_option(asio::ip::v6_only(found.size() > 1), error);
    if (!error) acceptor->bind(endpoint, error);
    if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      if (!first_error) first_error = error;
      if (error == asio::error::address_in_use) break;
      continue;  // a machine may have no IPv6
    }
    if (port_ == 0) port_ = acceptor->local_endpoint().port();
    tcp_.push_back(std::move(acceptor));
  }
  if (tcp_.empty() || first_error == asio::error::address_in_use)
    cannot_listen(name, first_error, Hint("choose another port with {0}", {set_option("port")}));
}

void HttpListener::Impl::listen_unix() {
  const std::filesystem::path& path = core_->options.socket;
  check(path.string().size() < 108, "the path of a socket can have at most 107 bytes: {}", path.string());
  remove_stale_socket(path);
  unix_ = std::make_unique<Unix::acceptor>(strand_);
  error_code error;
  unix_->open(Unix(), error);
  const mode_t mask = ::umask(0077);  // nobody else may connect, not even for a moment
  if (!error) unix_->bind(Unix::endpoint(path.string()), error);
  ::umask(mask);
  if (!error) unix_->listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    unix_.reset();
    cannot_listen(path.string(), error, Hint("choose another path with {0}", {set_option("socket")}));
  }
}

void HttpListener::Impl::run_loops() {
  const auto run = [core = core_](asio::io_context& loop) {
    while (true) {
      try {
        loop.run();
        return;
      } catch (const std::exception& e) {  // out of memory, say: one connection suffers, the others go on
        core->options.log.warn("the server continues after an error: {}", e.what());
      }
    }
  };
  for (int i = 0; i < std::max(1, core_->options.io_threads); ++i)
    io_threads_.push_back(start_thread("the connections of the server", [run, core = core_] { run(core->io); }));
  for (int i = 0; i < std::max(1, core_->options.handler_threads); ++i)
    pool_threads_.push_back(start_thread("the requests of the server", [run, core = core_] { run(core->pool); }));
}

void HttpListener::Impl::start() {
  require(!started_, "a listener starts once");
  const ListenOptions& options = core_->options;
  check(options.tls_certificate.empty() == options.tls_key.empty(), "TLS needs a certificate and a key");
  if (!options.tls_certificate.empty()) core_->tls = tls_context(options.tls_certificate, options.tls_key);
  raise_file_limit(options.connections);
  remove_stale_uploads(options.upload_folder);
  if (options.socket.empty()) listen_tcp();
  else listen_unix();
  started_ = true;
  for (const auto& acceptor : tcp_) accept_next(*acceptor);
  if (unix_) accept_next(*unix_);
  run_loops();
}

template <class Acceptor>
void HttpListener::Impl::accept_next(Acceptor& acceptor) {
  acceptor.async_accept(asio::make_strand(core_->io), [this, &acceptor](error_code error, Accepted<Acceptor> socket) {
    take(acceptor, error, std::move(socket));
  });
}

template <class Acceptor>
void HttpListener::Impl::take(Acceptor& acceptor, error_code error, Accepted<Acceptor> socket) {
  if (core_->stopping || error == asio::error::operation_aborted || !acceptor.is_open()) return;
  if (error) {  // no more files: accepting again at once would only spin
    auto pause = std::make_shared<asio::steady_timer>(strand_, std::chrono::milliseconds(100));
    pause->async_wait([this, &acceptor, pause](error_code) {
      if (!core_->stopping && acceptor.is_open()) accept_next(acceptor);
    });
    return;
  }
  error_code ignored;
  if (core_->connection_count() >= core_->options.connections) {
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(kFull, std::char_traits<char>::length(kFull)), ignored);
    socket.close(ignored);
  } else {
    set_options(socket);
    const auto remote = socket.remote_endpoint(ignored);
    const Strand strand = socket.get_executor();
    StreamSocket stream(std::move(socket));
    auto transport = core_->tls ? tls_transport(std::move(stream), *core_->tls) : plain_transport(std::move(stream));
    std::make_shared<Connection>(core_, strand, std::move(transport), address_of(remote))->start();
  }
  accept_next(acceptor);
}

void HttpListener::Impl::stop(std::chrono::milliseconds grace) {
  if (stopped_) return;
  stopped_ = true;
  core_->stopping = true;
  if (started_) {
    const auto close_acceptors = [this] {
      error_code ignored;
      for (const auto& acceptor : tcp_) acceptor->close(ignored);
      if (unix_) unix_->close(ignored);
    };
    asio::post(strand_, close_acceptors);
    for (const auto& connection : core_->connections()) connection->stop_soon();
    if (grace.count() > 0) core_->wait_until_empty(grace);
    // A connection accepted just now may enter after the first round.
    do
      for (const auto& connection : core_->connections()) connection->abandon();
    while (!core_->wait_until_empty(std::chrono::milliseconds(50)) && core_->connection_count() > 0);
    std::error_code ignored;
    if (unix_) std::filesystem::remove(core_->options.socket, ignored);
  }
  core_->end();
  pool_threads_.clear();  // joins
  io_threads_.clear();
}

std::string HttpListener::Impl::url() const {
  const ListenOptions& options = core_->options;
  if (!options.socket.empty()) return "unix:" + options.socket.string();
  const std::string host = options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
  return fmt::format("{}://{}:{}", core_->tls ? "https" : "http", host, port_);
}

bool HttpListener::available() { return true; }

HttpListener::HttpListener(ListenOptions options, Admit admit, Handle handle)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(admit), std::move(handle))) {}

HttpListener::~HttpListener() { stop(std::chrono::milliseconds(0)); }

void HttpListener::on_websocket(Accept accept) { impl_->core_->accept = std::move(accept); }
void HttpListener::start() { impl_->start(); }
int HttpListener::port() const { return impl_->port_; }
std::string HttpListener::url() const { return impl_->url(); }
void HttpListener::stop(std::chrono::milliseconds grace) { impl_->stop(grace); }

HttpListener::Counts HttpListener::counts() const {
  const ServerCore& core = *impl_->core_;
  return {static_cast<int64_t>(core.connection_count()), core.streams.load(), core.requests.load()};
}

}  // namespace flux2
