#pragma once

#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/http/errors.h"
#include "server/http/event_channel.h"
#include "server/http/multipart.h"
#include "server/http/request_parser.h"
#include "server/http/request_peer.h"
#include "server/http/response_head.h"
#include "server/http/server_core.h"
#include "server/http/transport.h"

namespace flux2 {

// One client: reads a request, hands it to the pool, writes the answer, and so on. Everything private runs on the strand. While
// an answer is awaited a read stays pending, so that the end of the connection is seen at once; bytes of the next request wait in
// input_ until the answer is written.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerCore> core, Strand strand, std::unique_ptr<Transport> transport, std::string remote_address);
  ~Connection();

  // From any thread:
  void start();
  void send_answer(PreparedAnswer answer);
  std::shared_ptr<EventChannel> new_channel();
  void send_stream(Headers headers, const std::string& request_id, const std::shared_ptr<EventChannel>& channel);
  void call_on_io_thread(std::function<void()> call);
  void stop_soon();  // when the answer under way is written
  void abandon();    // at once

 private:
  enum class State { Handshake, Head, Body, Answering, Streaming, WebSocket, Lingering };

  // connection.cpp
  void want_read();
  void on_read(boost::system::error_code error, size_t bytes);
  void on_input_end(boost::system::error_code error);
  void set_deadline(std::chrono::milliseconds time);
  void set_head_deadline();
  void clear_deadline();
  void on_deadline();
  void begin_next_request();
  void end();  // tells the client, then closes
  void close();

  // connection_request.cpp
  void advance();
  bool parse_head();  // false: more bytes are needed
  bool parse_body();
  void begin_request();
  void expect_body(const Admission& admission);
  void add_to_form(std::string bytes);
  void finish_form();
  void dispatch();
  bool wants_websocket() const;
  void begin_handshake();
  void refuse(const HttpError& error);
  void answer_now(HttpResponse response);
  void read_frames();

  // connection_answer.cpp
  void write(std::string bytes);
  void write_next();
  void on_write(boost::system::error_code error, size_t bytes);
  void on_written();
  void begin_answer(PreparedAnswer answer);
  void send_piece();
  void finish_answer();
  void note_request(int status, uint64_t bytes, bool is_stream) const;
  void begin_stream(Headers headers, const std::string& request_id, std::shared_ptr<EventChannel> channel);
  void begin_websocket();
  void count_stream();
  void pump_events();
  struct WaitingEvents {
    std::string before, after;
    std::vector<EventStream::SharedText> texts;
  };
  WaitingEvents take_events();
  void add_common_headers(Headers& headers) const;

  const std::shared_ptr<ServerCore> core_;  // first: its event loop must outlive the timer and the socket
  const Strand strand_;
  const std::unique_ptr<Transport> transport_;
  const std::string remote_address_;
  boost::asio::steady_timer timer_;
  bool has_deadline_ = false;

  State state_ = State::Handshake;
  bool closed_ = false, reading_ = false, writing_ = false, input_ended_ = false;
  std::string read_buffer_, input_;
  size_t discarded_ = 0;  // while lingering

  std::unique_ptr<RequestParser> parser_;
  std::chrono::steady_clock::time_point head_began_;
  std::shared_ptr<ServerRequest> request_;
  std::chrono::steady_clock::time_point request_began_;
  uint64_t answer_bytes_ = 0;
  std::shared_ptr<FormReader> form_;
  bool form_busy_ = false;  // the pool has it
  uint64_t body_bytes_ = 0, body_limit_ = 0;
  bool keep_alive_ = true, is_http_1_0_ = false;
  Headers more_headers_;  // for the answer
  std::weak_ptr<RequestPeer> peer_;

  std::deque<std::string> out_;
  size_t out_at_ = 0;  // of the first text
  bool answering_ = false;
  PreparedAnswer answer_;
  bool file_busy_ = false;
  std::shared_ptr<EventChannel> channel_;
  std::atomic<bool> woken_{false};
  bool stream_counted_ = false, last_sent_ = false;
};

}  // namespace flux2
