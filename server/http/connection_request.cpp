#include <fmt/format.h>

#include "base/text.h"
#include "server/http/connection.h"
#include "server/http/multipart_head.h"
#include "server/http/url_target.h"
#include "server/http/websocket_frames.h"

namespace flux2 {
namespace {

HttpError too_large(uint64_t limit) {
  return HttpError(413, "payload_too_large", fmt::format("The body of this request can have at most {}.", byte_text(limit)));
}

bool lists_word(std::string_view header, std::string_view word) {
  while (!header.empty()) {
    const size_t end = std::min(header.find(','), header.size());
    if (lower_case(trimmed(header.substr(0, end))) == word) return true;
    header.remove_prefix(std::min(end + 1, header.size()));
  }
  return false;
}

// The files of a form go with the request, unless somebody moved them away.
std::shared_ptr<ServerRequest> new_request() {
  return {new ServerRequest, [](ServerRequest* request) {
            remove_part_files(request->parts);
            delete request;
          }};
}

}  // namespace

void Connection::advance() {
  try {
    while (!closed_) {
      if (state_ == State::Head) {
        if (!parse_head()) return want_read();
      } else if (state_ == State::Body) {
        if (!parse_body()) return form_busy_ ? void() : want_read();
      } else {
        return;
      }
    }
  } catch (const HttpError& e) {
    refuse(e);
  } catch (const std::exception&) {
    refuse(http_error_of(std::current_exception()));
  }
}

bool Connection::parse_head() {
  if (input_.empty()) return false;
  if (!parser_) {
    parser_ = std::make_unique<RequestParser>(core_->options.header_bytes);
    set_head_deadline();
  }
  while (!parser_->has_head()) {
    const size_t used = parser_->read_head(input_);
    input_.erase(0, used);
    if (used == 0 || (input_.empty() && !parser_->has_head())) return false;
  }
  begin_request();
  return true;
}

void Connection::begin_request() {
  ++core_->requests;
  state_ = State::Body;
  request_ = new_request();
  request_began_ = std::chrono::steady_clock::now();
  request_->id = core_->new_request_id();
  request_->remote_address = remote_address_;
  parser_->copy_head(*request_);
  keep_alive_ = parser_->keep_alive();
  is_http_1_0_ = parser_->is_http_1_0();
  body_bytes_ = 0;
  more_headers_.clear();
  UrlTarget target = parse_target(parser_->target());
  request_->path = std::move(target.path);
  request_->query = std::move(target.query);

  Admission admission = core_->admit ? core_->admit(*request_) : Admission{};
  more_headers_ = std::move(admission.headers);
  if (admission.refusal) return answer_now(std::move(*admission.refusal));
  if (wants_websocket()) return begin_handshake();
  expect_body(admission);
}

void Connection::expect_body(const Admission& admission) {
  set_deadline(core_->options.byte_timeout);
  if (!parser_->has_body()) return;
  const auto boundary = form_boundary(request_->header("content-type"));
  body_limit_ = boundary && admission.form_limit > 0 ? admission.form_limit : admission.body_limit;
  if (parser_->content_length().value_or(0) > body_limit_) throw too_large(body_limit_);
  if (boundary) {
    request_->is_multipart = true;
    const FormLimits limits{.parts = static_cast<size_t>(core_->options.parts), .part_in_memory = core_->options.part_in_memory};
    form_ = std::make_shared<FormReader>(*boundary, limits, core_->options.upload_folder);
  }
  const std::string_view expected = request_->header("expect");
  if (expected.empty()) return;
  if (lower_case(expected) != "100-continue")
    throw HttpError(417, "expectation_failed", "The only supported expectation is 100-continue.");
  if (!is_http_1_0_ && input_.empty()) write("HTTP/1.1 100 Continue\r\n\r\n");
}

bool Connection::parse_body() {
  if (form_busy_) return false;
  std::string bytes;
  while (!parser_->is_done()) {
    std::string& out = form_ ? bytes : request_->body;
    const size_t before = out.size(), used = parser_->read_body(input_, out);
    input_.erase(0, used);
    body_bytes_ += out.size() - before;
    if (body_bytes_ > body_limit_) throw too_large(body_limit_);
    if (used == 0) break;
  }
  if (!bytes.empty()) {
    add_to_form(std::move(bytes));
    return false;
  }
  if (!parser_->is_done()) return false;
  if (form_) {
    finish_form();
    return false;
  }
  dispatch();
  return true;
}

// Forms are read on the pool, since parts may go to the disk.
void Connection::add_to_form(std::string bytes) {
  form_busy_ = true;
  clear_deadline();
  core_->post_to_pool([self = shared_from_this(), form = form_, bytes = std::move(bytes)] {
    std::exception_ptr thrown;
    try {
      form->add(bytes);
    } catch (...) {
      thrown = std::current_exception();
    }
    self->core_->post(self->strand_, [self, thrown] {
      self->form_busy_ = false;
      if (self->closed_) return;
      if (thrown) return self->refuse(http_error_of(thrown));
      self->set_deadline(self->core_->options.byte_timeout);
      self->advance();
    });
  });
}

void Connection::finish_form() {
  form_busy_ = true;
  clear_deadline();
  core_->post_to_pool([self = shared_from_this(), form = form_, request = request_] {
    std::exception_ptr thrown;
    try {
      request->parts = form->finish();
    } catch (...) {
      thrown = std::current_exception();
    }
    self->core_->post(self->strand_, [self, thrown] {
      self->form_busy_ = false;
      if (self->closed_) return;
      if (thrown) return self->refuse(http_error_of(thrown));
      self->dispatch();
    });
  });
}

void Connection::dispatch() {
  state_ = State::Answering;
  clear_deadline();
  parser_.reset();
  form_.reset();
  const auto peer = std::make_shared<RequestPeer>(shared_from_this(), request_);
  peer_ = peer;
  core_->post_to_pool([core = core_, exchange = Exchange(request_, peer)] {
    try {
      core->handle(exchange);
    } catch (...) {
      const ServerRequest& request = exchange.request();
      const HttpError error = http_error_of(std::current_exception());
      if (error.status >= 500) {
        try {
          throw;
        } catch (const std::exception& e) {
          core->options.log.warn("{} {} {} failed: {}", request.id, request.method, request.path, e.what());
        } catch (...) {
          core->options.log.warn("{} {} {} failed", request.id, request.method, request.path);
        }
      }
      exchange.respond(error_response(family_of(request.path), error, request.id));
    }
  });
  want_read();  // sees the client leave
}

bool Connection::wants_websocket() const {
  return core_->accept && request_->method == "GET" && lists_word(request_->header("upgrade"), "websocket") &&
         lists_word(request_->header("connection"), "upgrade") && request_->header("sec-websocket-version") == "13" &&
         !request_->header("sec-websocket-key").empty() && !parser_->has_body();
}

void Connection::begin_handshake() {
  state_ = State::Answering;
  clear_deadline();
  parser_.reset();
  channel_ = new_channel();
  core_->post_to_pool([self = shared_from_this(), request = request_, channel = channel_] {
    std::exception_ptr thrown;
    try {
      self->core_->accept(*request, std::make_shared<EventChannelHandle>(channel));
    } catch (...) {
      thrown = std::current_exception();
    }
    self->core_->post(self->strand_, [self, thrown] {
      if (self->closed_) return;
      if (!thrown) return self->begin_websocket();
      if (const auto refused = std::exchange(self->channel_, nullptr)) refused->closed();
      self->refuse(http_error_of(thrown));
    });
  });
  want_read();
}

// Nothing is read after a refusal, so the connection ends with it unless the request was complete.
void Connection::refuse(const HttpError& error) {
  if (answering_ || closed_) return;
  keep_alive_ = keep_alive_ && state_ == State::Answering;
  if (!request_) {
    request_ = new_request();
    request_began_ = std::chrono::steady_clock::now();
    request_->id = core_->new_request_id();
    request_->method = "GET";
  }
  const Family family = request_->path.empty() ? Family::Page : family_of(request_->path);
  answer_now(error_response(family, error, request_->id));
}

void Connection::answer_now(HttpResponse response) {
  if (parser_ && !parser_->is_done()) keep_alive_ = false;
  state_ = State::Answering;
  clear_deadline();
  parser_.reset();
  form_.reset();
  begin_answer(prepare_answer(*request_, std::move(response)));
}

void Connection::read_frames() {
  try {
    while (!last_sent_) {
      const WebSocketFrame frame = read_client_frame(input_);
      if (frame.used == 0) break;
      input_.erase(0, frame.used);
      if (frame.kind == WebSocketFrame::Ping && out_.size() < 16) write(server_frame(WebSocketFrame::Pong, frame.content));
      if (frame.kind != WebSocketFrame::Close) continue;
      last_sent_ = true;
      write(server_frame(WebSocketFrame::Close, frame.content.substr(0, 2)));
    }
    if (last_sent_) input_.clear();
    want_read();
  } catch (const Error&) {
    last_sent_ = true;
    write(server_frame(WebSocketFrame::Close, "\x03\xea"));  // 1002: protocol error
  }
}

}  // namespace flux2
