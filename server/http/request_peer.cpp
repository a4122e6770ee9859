#include "server/http/request_peer.h"

#include "server/http/connection.h"
#include "server/http/errors.h"

namespace flux2 {

RequestPeer::~RequestPeer() {
  if (answered_) return;
  try {
    const HttpError error(500, "internal", "The server did not answer this request.");
    respond(error_response(family_of(request_->path), error, request_->id));
  } catch (const std::exception&) {
    connection_->abandon();
  }
}

bool RequestPeer::claim() {
  std::vector<std::function<void()>> forgotten;  // their captures may own exchanges: destroyed outside the lock
  const std::lock_guard lock(mutex_);
  if (answered_) return false;
  answered_ = true;
  forgotten.swap(calls_);
  return true;
}

void RequestPeer::respond(HttpResponse response) {
  if (!claim()) return;
  PreparedAnswer answer;
  try {
    answer = prepare_answer(*request_, std::move(response));
  } catch (const Error& e) {
    answer = prepare_answer(*request_, error_response(family_of(request_->path), http_error_of(e), request_->id));
  }
  connection_->send_answer(std::move(answer));
}

std::shared_ptr<EventStream::Channel> RequestPeer::stream(Headers headers) {
  const auto channel = connection_->new_channel();
  if (claim()) connection_->send_stream(std::move(headers), request_->id, channel);
  else channel->closed();
  return std::make_shared<EventChannelHandle>(channel);
}

void RequestPeer::on_disconnect(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (answered_) return;
    if (!gone_) {
      calls_.push_back(std::move(call));
      return;
    }
  }
  connection_->call_on_io_thread(std::move(call));
}

void RequestPeer::gone() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    if (answered_ || gone_) return;
    gone_ = true;
    calls.swap(calls_);
  }
  for (const auto& call : calls) call();
}

}  // namespace flux2
