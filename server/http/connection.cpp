#include "server/http/connection.h"

#include <boost/asio/error.hpp>

#include <algorithm>

namespace flux2 {
namespace {

constexpr size_t kSmallRead = 4 << 10, kBodyRead = 64 << 10;
constexpr size_t kWaitingInput = 16 << 10;  // of the next request, while this one is answered
constexpr size_t kLingeringInput = 1 << 20;
constexpr std::chrono::seconds kLingering{2};

}  // namespace

Connection::Connection(std::shared_ptr<ServerCore> core, Strand strand, std::unique_ptr<Transport> transport,
                       std::string remote_address)
    : core_(std::move(core)),
      strand_(std::move(strand)),
      transport_(std::move(transport)),
      remote_address_(std::move(remote_address)),
      timer_(strand_) {
  core_->enter(*this);
}

Connection::~Connection() {
  if (!closed_) core_->leave(*this);
}

void Connection::start() {
  core_->post(strand_, [self = shared_from_this()] {
    self->set_deadline(self->core_->options.byte_timeout);
    self->transport_->handshake([self](boost::system::error_code error, size_t) {
      if (self->closed_) return;
      if (error) self->close();
      else self->begin_next_request();
    });
  });
}

void Connection::begin_next_request() {
  state_ = State::Head;
  set_deadline(core_->options.byte_timeout);
  advance();
}

void Connection::want_read() {
  if (reading_ || closed_ || input_ended_) return;
  reading_ = true;
  const size_t size = state_ == State::Body ? kBodyRead : kSmallRead;
  if (read_buffer_.size() != size) {
    read_buffer_ = std::string();  // an idle connection keeps a small buffer
    read_buffer_.resize(size);
  }
  transport_->read_some(
      boost::asio::buffer(read_buffer_),
      [self = shared_from_this()](boost::system::error_code error, size_t bytes) { self->on_read(error, bytes); });
}

void Connection::on_read(boost::system::error_code error, size_t bytes) {
  reading_ = false;
  if (closed_) return;
  if (error) return on_input_end(error);
  const std::string_view read(read_buffer_.data(), bytes);
  switch (state_) {
    case State::Handshake: return;
    case State::Head:
    case State::Body:
      input_ += read;
      if (state_ == State::Head) set_head_deadline();
      else set_deadline(core_->options.byte_timeout);
      return advance();
    case State::Answering:
      input_ += read;
      if (input_.size() < kWaitingInput) want_read();
      return;
    case State::WebSocket: input_ += read; return read_frames();
    case State::Streaming: return want_read();  // a client of an event stream has nothing to say
    case State::Lingering:
      discarded_ += bytes;
      if (discarded_ > kLingeringInput) return close();
      return want_read();
  }
}

void Connection::on_input_end(boost::system::error_code error) {
  input_ended_ = true;
  if (state_ != State::Answering || error != boost::asio::error::eof || channel_) return close();
  // The client has left, or has only closed its sending side and still reads. Either way whoever works on the answer may stop; an
  // answer that comes is sent.
  if (const auto peer = peer_.lock()) peer->gone();
}

void Connection::set_deadline(std::chrono::milliseconds time) {
  if (closed_) return;
  has_deadline_ = true;
  timer_.expires_after(time);
  timer_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
    if (error) return;
    if (const auto self = weak.lock()) self->on_deadline();
  });
}

// Each byte gives more time, but a head as a whole gets no more than four times as much: else one byte now and then would hold a
// connection for hours.
void Connection::set_head_deadline() {
  using namespace std::chrono;
  const auto now = steady_clock::now();
  if (!parser_ || !parser_->has_begun()) head_began_ = now;
  const auto left = duration_cast<milliseconds>(head_began_ + 4 * core_->options.byte_timeout - now);
  set_deadline(std::clamp<milliseconds>(left, milliseconds(1), core_->options.byte_timeout));
}

void Connection::clear_deadline() {
  has_deadline_ = false;
  timer_.cancel();
}

void Connection::on_deadline() {
  if (closed_ || !has_deadline_ || timer_.expiry() > std::chrono::steady_clock::now()) return;
  const bool owes_bytes = state_ == State::Body || (state_ == State::Head && parser_ && parser_->has_begun());
  if (!owes_bytes || writing_) return close();
  refuse(HttpError(408, "request_timeout", "The request did not arrive in time."));
}

void Connection::end() {
  if (closed_) return;
  if (input_ended_) return close();
  state_ = State::Lingering;
  set_deadline(kLingering);
  // Closing while the client still sends would reset the connection, and the client might lose the answer.
  transport_->end_sending([self = shared_from_this()](boost::system::error_code error, size_t) {
    if (error) self->close();
  });
  want_read();
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  clear_deadline();
  transport_->close();
  out_.clear();
  input_.clear();
  form_.reset();
  answer_ = {};
  if (stream_counted_) --core_->streams;
  core_->leave(*this);
  if (const auto channel = std::exchange(channel_, nullptr)) channel->closed();
  if (const auto peer = peer_.lock()) peer->gone();
  request_.reset();
}

void Connection::call_on_io_thread(std::function<void()> call) { core_->post(strand_, std::move(call)); }

void Connection::abandon() {
  core_->post(strand_, [self = shared_from_this()] { self->close(); });
}

void Connection::stop_soon() {
  core_->post(strand_, [self = shared_from_this()] {
    const bool idle = self->state_ == State::Handshake ||
                      (self->state_ == State::Head && self->input_.empty() && (!self->parser_ || !self->parser_->has_begun()));
    if (self->channel_) self->channel_->close();
    else if (idle) self->close();
  });
}

}  // namespace flux2
