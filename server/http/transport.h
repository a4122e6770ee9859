#pragma once

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/strand.hpp>

#include <filesystem>
#include <functional>
#include <memory>
#include <span>

namespace flux2 {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
using StreamSocket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, Strand>;  // TCP or Unix

// The bytes of a connection, plain or through TLS. All calls come from the socket's strand, and callbacks run there.
class Transport {
 public:
  using Done = std::function<void(boost::system::error_code, size_t)>;

  virtual ~Transport() = default;
  virtual void handshake(Done done) = 0;
  virtual void read_some(boost::asio::mutable_buffer into, Done done) = 0;
  virtual void write_some(boost::asio::const_buffer from, Done done) = 0;
  // What can be sent at once, without waiting. 0: nothing, use write_some().
  virtual size_t try_write(std::span<const boost::asio::const_buffer> from) = 0;
  // Tells the client that no more bytes follow. Ends with an error if none can be read either.
  virtual void end_sending(Done done) = 0;
  virtual void close() = 0;  // pending calls end with an error
};

std::unique_ptr<Transport> plain_transport(StreamSocket socket);
std::unique_ptr<Transport> tls_transport(StreamSocket socket, boost::asio::ssl::context& context);

// Throws BadFile, naming the file, if the certificate or the key cannot be used.
std::unique_ptr<boost::asio::ssl::context> tls_context(const std::filesystem::path& certificate,
                                                       const std::filesystem::path& key);

}  // namespace flux2
