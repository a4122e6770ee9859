#include "server/http/transport.h"

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "base/error.h"

namespace flux2 {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

class PlainTransport : public Transport {
 public:
  explicit PlainTransport(StreamSocket socket) : socket_(std::move(socket)) {
    error_code failure;
    socket_.non_blocking(true, failure);
    can_try_ = !failure;
  }

  void handshake(Done done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}, 0); });
  }
  void read_some(asio::mutable_buffer into, Done done) override { socket_.async_read_some(into, std::move(done)); }
  void write_some(asio::const_buffer from, Done done) override { socket_.async_write_some(from, std::move(done)); }
  size_t try_write(std::span<const asio::const_buffer> from) override {
    error_code error;  // the next write_some() reports it
    return can_try_ ? socket_.write_some(from, error) : 0;
  }
  void end_sending(Done done) override {
    error_code error;
    socket_.shutdown(asio::socket_base::shutdown_send, error);
    asio::post(socket_.get_executor(), [done = std::move(done), error] { done(error, 0); });
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  StreamSocket socket_;
  bool can_try_ = false;
};

class TlsTransport : public Transport {
 public:
  TlsTransport(StreamSocket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}

  void handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, [done = std::move(done)](error_code error) { done(error, 0); });
  }
  void read_some(asio::mutable_buffer into, Done done) override { stream_.async_read_some(into, std::move(done)); }
  void write_some(asio::const_buffer from, Done done) override { stream_.async_write_some(from, std::move(done)); }
  size_t try_write(std::span<const asio::const_buffer>) override { return 0; }
  void end_sending(Done done) override {
    stream_.async_shutdown([done = std::move(done)](error_code error) { done(error ? error : asio::error::eof, 0); });
  }
  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  asio::ssl::stream<StreamSocket> stream_;
};

}  // namespace

std::unique_ptr<Transport> plain_transport(StreamSocket socket) { return std::make_unique<PlainTransport>(std::move(socket)); }

std::unique_ptr<Transport> tls_transport(StreamSocket socket, asio::ssl::context& context) {
  return std::make_unique<TlsTransport>(std::move(socket), context);
}

std::unique_ptr<asio::ssl::context> tls_context(const std::filesystem::path& certificate, const std::filesystem::path& key) {
  using Context = asio::ssl::context;
  auto context = std::make_unique<Context>(Context::tls_server);
  context->set_options(Context::default_workarounds | Context::no_sslv2 | Context::no_sslv3 | Context::no_tlsv1 |
                       Context::no_tlsv1_1);
  // An idle connection keeps no buffers.
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  error_code error;
  context->use_certificate_chain_file(certificate.string(), error);
  if (error) fail(ErrorCode::BadFile, "The TLS certificate {} cannot be used: {}", certificate.string(), error.message());
  context->use_private_key_file(key.string(), Context::pem, error);
  if (error) fail(ErrorCode::BadFile, "The TLS key {} cannot be used: {}", key.string(), error.message());
  return context;
}

}  // namespace flux2
