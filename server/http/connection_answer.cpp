#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "server/http/connection.h"
#include "server/http/websocket_frames.h"

namespace flux2 {
namespace {

constexpr size_t kFilePiece = 128 << 10;
constexpr size_t kSmallBody = 16 << 10;   // goes into the same write as the head
constexpr size_t kEventBatch = 64 << 10;  // events are joined up to this size

bool has_header(const Headers& headers, std::string_view name) {
  return std::ranges::any_of(headers, [&](const auto& header) { return header.first == name; });
}

// Up to a piece of [at, end); shorter only if the file is.
std::string read_piece(int fd, uint64_t at, uint64_t end) {
  std::string bytes(static_cast<size_t>(std::min<uint64_t>(kFilePiece, end - at)), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

void Connection::write(std::string bytes) {
  out_.push_back(std::move(bytes));
  if (!writing_) write_next();
}

void Connection::write_next() {
  if (closed_) return;
  if (out_.empty()) return on_written();
  writing_ = true;
  set_deadline(core_->options.byte_timeout);
  transport_->write_some(
      boost::asio::buffer(out_.front().data() + out_at_, out_.front().size() - out_at_),
      [self = shared_from_this()](boost::system::error_code error, size_t bytes) { self->on_write(error, bytes); });
}

void Connection::on_write(boost::system::error_code error, size_t bytes) {
  writing_ = false;
  if (closed_) return;
  if (error) return close();
  out_at_ += bytes;
  if (out_at_ >= out_.front().size()) {
    out_.pop_front();
    out_at_ = 0;
  }
  write_next();
}

void Connection::on_written() {
  switch (state_) {
    case State::Body: return form_busy_ ? clear_deadline() : set_deadline(core_->options.byte_timeout);
    case State::Answering:
      if (!answering_) return clear_deadline();
      return (answer_.file || answer_.pieces) && answer_.begin < answer_.end ? send_piece() : finish_answer();
    case State::Streaming:
    case State::WebSocket: clear_deadline(); return pump_events();
    case State::Handshake:
    case State::Head:
    case State::Lingering: return;
  }
}

void Connection::add_common_headers(Headers& headers) const {
  for (const auto& header : more_headers_)
    if (!has_header(headers, header.first)) headers.push_back(header);
  headers.emplace_back("date", http_date(std::time(nullptr)));
  if (!keep_alive_) headers.emplace_back("connection", "close");
  else if (is_http_1_0_) headers.emplace_back("connection", "keep-alive");
}

void Connection::send_answer(PreparedAnswer answer) {
  auto held = std::make_shared<PreparedAnswer>(std::move(answer));
  core_->post(strand_, [self = shared_from_this(), held] { self->begin_answer(std::move(*held)); });
}

void Connection::begin_answer(PreparedAnswer answer) {
  if (closed_ || state_ != State::Answering || answering_) return;
  answering_ = true;
  if (core_->stopping || input_ended_) keep_alive_ = false;
  answer_ = std::move(answer);
  add_common_headers(answer_.headers);
  answer_bytes_ = answer_.file || answer_.pieces ? answer_.end - answer_.begin : answer_.body.size();
  std::string head = head_text(answer_.status, answer_.headers);
  if (answer_.body.size() <= kSmallBody) {
    head += answer_.body;
    return write(std::move(head));
  }
  out_.push_back(std::move(head));
  write(std::move(answer_.body));
}

void Connection::send_piece() {
  if (file_busy_) return;
  file_busy_ = true;
  clear_deadline();
  core_->post_to_pool(
      [self = shared_from_this(), file = answer_.file, pieces = answer_.pieces, at = answer_.begin, end = answer_.end] {
        auto bytes = std::make_shared<std::string>();
        try {
          *bytes = pieces ? pieces() : read_piece(file->fd, at, end);
          if (bytes->size() > end - at) bytes->clear();
        } catch (const std::exception& e) {
          self->core_->options.log.warn("an answer ends early: {}", e.what());
        }
        self->core_->post(self->strand_, [self, bytes] {
          self->file_busy_ = false;
          if (self->closed_) return;
          if (bytes->empty()) return self->close();  // the client sees that bytes are missing
          self->answer_.begin += bytes->size();
          self->write(std::move(*bytes));
        });
      });
}

void Connection::note_request(int status, uint64_t bytes, bool is_stream) const {
  const ServerRequest& request = *request_;
  core_->options.log.debug("{} {} {} {}{}", request.id, request.method, request.path, status, is_stream ? ", a stream" : "");
  if (!core_->options.on_request) return;
  RequestLine line;
  line.id = request.id;
  line.method = request.method;
  line.path = request.path;
  line.remote_address = request.remote_address;
  line.key = request.caller.name;
  line.status = status;
  line.bytes = bytes;
  line.is_stream = is_stream;
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - request_began_;
  line.milliseconds = time.count();
  for (const auto& [name, value] : request.captured)
    if (value.starts_with("job_")) line.job = value;
  for (const auto& [name, value] : answer_.headers)
    if (const size_t at = value.rfind("job_"); name == "location" && at != value.npos) line.job = value.substr(at);
  core_->options.on_request(line);
}

void Connection::finish_answer() {
  note_request(answer_.status, answer_bytes_, false);
  answering_ = false;
  answer_ = {};
  peer_.reset();
  request_.reset();
  if (!keep_alive_ || core_->stopping || input_ended_) return end();
  begin_next_request();
}

std::shared_ptr<EventChannel> Connection::new_channel() {
  return std::make_shared<EventChannel>([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->woken_.exchange(true)) return;
    self->core_->post(self->strand_, [self] {
      self->woken_ = false;
      self->pump_events();
    });
  });
}

void Connection::send_stream(Headers headers, const std::string& request_id, const std::shared_ptr<EventChannel>& channel) {
  const bool posted = core_->post(strand_, [self = shared_from_this(), headers = std::move(headers), request_id, channel] {
    self->begin_stream(headers, request_id, channel);
  });
  if (!posted) channel->closed();
}

void Connection::begin_stream(Headers headers, const std::string& request_id, std::shared_ptr<EventChannel> channel) {
  if (closed_ || state_ != State::Answering || answering_ || input_ended_) {
    channel->closed();
    return close();
  }
  const bool only_head = request_->method == "HEAD";
  note_request(200, 0, true);
  state_ = State::Streaming;
  keep_alive_ = false;
  channel_ = std::move(channel);
  request_.reset();
  input_ = {};
  if (!has_header(headers, "content-type")) headers.emplace_back("content-type", "text/event-stream");
  if (!has_header(headers, "cache-control")) headers.emplace_back("cache-control", "no-store");
  headers.emplace_back("x-accel-buffering", "no");  // proxies pass each event on at once
  headers.emplace_back("x-request-id", request_id);
  if (!is_http_1_0_) headers.emplace_back("transfer-encoding", "chunked");
  add_common_headers(headers);
  count_stream();
  if (only_head) {
    last_sent_ = true;
    channel_->close();
  } else if (core_->stopping) {
    channel_->close();
  }
  write(head_text(200, headers));
  want_read();
}

void Connection::begin_websocket() {
  state_ = State::WebSocket;
  keep_alive_ = false;
  const Headers headers = {{"upgrade", "websocket"},
                           {"connection", "Upgrade"},
                           {"sec-websocket-accept", websocket_accept(request_->header("sec-websocket-key"))},
                           {"x-request-id", request_->id}};
  request_.reset();
  count_stream();
  write(head_text(101, headers));
  read_frames();
}

void Connection::count_stream() {
  stream_counted_ = true;
  ++core_->streams;
}

// The waiting events of a stream, up to kEventBatch bytes, with what goes around them.
Connection::WaitingEvents Connection::take_events() {
  WaitingEvents events;
  size_t bytes = 0;
  const bool frames = state_ == State::WebSocket;
  while (bytes < kEventBatch && !last_sent_) {
    EventChannel::Next next = channel_->next();
    if (next.text) {
      bytes += next.text->size();
      if (frames) next.text = std::make_shared<const std::string>(server_frame(WebSocketFrame::Text, *next.text));
      events.texts.push_back(std::move(next.text));
    } else if (next.is_last) {
      last_sent_ = true;
    } else {
      break;
    }
  }
  const bool chunked = !frames && !is_http_1_0_;
  if (chunked && bytes > 0) events.before = fmt::format("{:x}\r\n", bytes), events.after = "\r\n";
  if (last_sent_) events.after += frames ? server_frame(WebSocketFrame::Close, "\x03\xe8") : chunked ? "0\r\n\r\n" : "";
  return events;
}

void Connection::pump_events() {
  if (!closed_ && channel_ && channel_->overflowed()) {  // also while a write waits for the client
    core_->options.log.debug("a client reads its events too slowly; its stream is closed");
    return close();
  }
  if (closed_ || writing_ || !out_.empty() || !channel_ || (state_ != State::Streaming && state_ != State::WebSocket)) return;
  while (true) {
    if (last_sent_) return end();
    const WaitingEvents events = take_events();
    std::vector<boost::asio::const_buffer> parts;
    const auto add = [&](const std::string& text) {
      if (!text.empty()) parts.emplace_back(text.data(), text.size());
    };
    add(events.before);
    for (const auto& text : events.texts) add(*text);
    add(events.after);
    if (parts.empty()) return last_sent_ ? end() : void();
    // Thousands of streams get the same bytes: no copy for each, and no timer while the client keeps up.
    const size_t sent = transport_->try_write(parts);
    std::string rest;
    size_t before = 0;
    for (const auto& part : parts) {
      const size_t skipped = std::min(sent - std::min(sent, before), part.size());
      rest.append(static_cast<const char*>(part.data()) + skipped, part.size() - skipped);
      before += part.size();
    }
    if (!rest.empty()) return write(std::move(rest));
  }
}

}  // namespace flux2
