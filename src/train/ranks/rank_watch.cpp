#include "train/ranks/rank_watch.h"

#include <poll.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/start_thread.h"
#include "base/text.h"

namespace flux2 {

namespace {

using Kind = RankMessage::Kind;

SteadyTime seconds_from_now(double seconds) {
  using Clock = std::chrono::steady_clock;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double seconds_since(SteadyTime time) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - time).count(); }

constexpr double kSendSeconds = 2;

}  // namespace

RankWatch::RankWatch(const RankPlace& place, const ProcessGroupOptions& options, std::vector<RankConnections::Control> control,
                     std::function<void()> on_failure)
    : place_(place), options_(options), on_failure_(std::move(on_failure)), exceptions_(std::uncaught_exceptions()) {
  const auto now = std::chrono::steady_clock::now();
  for (size_t i = 0; i < control.size(); ++i)
    if (control[i].socket.is_open()) peers_.push_back({static_cast<int>(i), std::move(control[i]), now});
  level_since_ = now;
  thread_ = start_thread("watching the other ranks", [this](const std::stop_token& stop) { run(stop); });
}

RankWatch::~RankWatch() {
  // A rank that is unwound by an error has not finished its work.
  if (std::uncaught_exceptions() > exceptions_ && !failed_)
    fail_all(place_.rank, fmt::format("rank {} stopped with an error", place_.rank));
  thread_.request_stop();
  thread_.join();
  if (!failed_) say_goodbye();
}

void RankWatch::run(const std::stop_token& stop) {
  while (!stop.stop_requested() && !failed_) {
    wait_for_messages();
    for (Peer& peer : peers_)
      if (peer.control.socket.is_open()) read(peer);
    if (failed_) return;
    beat();
    check_silence();
    check_lag();
    check_left();
  }
}

void RankWatch::wait_for_messages() {
  std::vector<pollfd> waiting;
  for (const Peer& peer : peers_)
    if (peer.control.socket.is_open()) waiting.push_back({peer.control.socket.fd(), POLLIN, 0});
  ::poll(waiting.data(), waiting.size(), static_cast<int>(std::clamp(options_.heartbeat_s * 500, 10.0, 100.0)));
}

void RankWatch::read(Peer& peer) {
  const bool open = peer.control.reader.receive(peer.control.socket);
  while (const auto message = peer.control.reader.next()) take(peer, *message);
  if (open) return;
  {
    const std::lock_guard lock(sending_);
    peer.control.socket.close();  // the other side sees it, if it waits for that
  }
  if (!peer.left) fail_all(peer.rank, fmt::format("rank {} has ended unexpectedly", peer.rank));
}

void RankWatch::take(Peer& peer, const RankMessage& message) {
  peer.heard = std::chrono::steady_clock::now();
  if (message.kind == Kind::Beat) peer.operations = message.number;
  if (message.kind == Kind::Failed) fail_all(message.rank, printable(message.text));
  if (message.kind != Kind::Left) return;
  {
    const std::lock_guard lock(sending_);
    peer.left = peer.left || message.rank == peer.rank;
  }
  note_left(message.rank, message.number);
  if (place_.rank == 0) send_to_all(message, message.rank);
}

void RankWatch::check_silence() {
  for (const Peer& peer : peers_)
    if (peer.control.socket.is_open() && !peer.left && seconds_since(peer.heard) > options_.silence_s)
      fail_all(peer.rank, fmt::format("rank {} has not answered for {:.0f} s", peer.rank, seconds_since(peer.heard)));
}

// Only rank 0 knows how far everybody is.
void RankWatch::check_lag() {
  if (place_.rank != 0) return;
  uint64_t lowest = operations_, highest = operations_;
  for (const Peer& peer : peers_) {
    if (peer.left) continue;
    lowest = std::min(lowest, peer.operations);
    highest = std::max(highest, peer.operations);
  }
  if (lowest == highest || lowest != std::exchange(lowest_, lowest)) level_since_ = std::chrono::steady_clock::now();
  if (seconds_since(level_since_) <= options_.collective_timeout_s) return;
  std::string ranks = operations_ == lowest ? "0" : "";
  for (const Peer& peer : peers_)
    if (!peer.left && peer.operations == lowest) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", peer.rank);
  fail_all(0, fmt::format("the others have waited {:.0f} s for rank {}, which is alive but does not go on",
                          options_.collective_timeout_s, ranks));
}

void RankWatch::beat() {
  if (seconds_since(beaten_) < options_.heartbeat_s) return;
  beaten_ = std::chrono::steady_clock::now();
  send_to_all({Kind::Beat, place_.rank, operations_, {}});
}

void RankWatch::note_left(int rank, uint64_t operations) {
  const std::lock_guard lock(state_);
  left_[rank] = operations;
}

// A rank that has ended in good order is missed only if others need it.
void RankWatch::check_left() {
  int missed = -1;
  {
    const std::lock_guard lock(state_);
    for (const auto& [rank, operations] : left_)
      if (operations_ > operations) missed = rank;
  }
  if (missed >= 0) fail_all(missed, fmt::format("rank {} has ended, but the other ranks go on", missed));
}

void RankWatch::send_to_all(const RankMessage& message, int except) {
  const std::lock_guard lock(sending_);
  for (Peer& peer : peers_)
    if (peer.control.socket.is_open() && !peer.left && peer.rank != except)
      send_message(peer.control.socket, message, seconds_from_now(kSendSeconds));
}

void RankWatch::fail_all(int rank, const std::string& text) {
  {
    const std::lock_guard lock(state_);
    if (failed_) return;
    failure_ = text;
    failed_ = true;
  }
  changed_.notify_all();
  on_failure_();
  send_to_all({Kind::Failed, rank, 0, text}, rank);
}

uint64_t RankWatch::begin_operation() {
  if (failed_) throw_failure();
  return ++operations_;
}

void RankWatch::throw_failure() {
  const std::lock_guard lock(state_);
  throw Error(ErrorCode::Network, failure_.empty() ? "the group of ranks has ended" : failure_);
}

void RankWatch::lost(int rank) {
  {
    std::unique_lock lock(state_);
    changed_.wait_for(lock, std::chrono::seconds(3), [&] { return failed_.load(); });
  }
  fail_all(rank, fmt::format("the connection to rank {} is lost", rank));
  throw_failure();
}

void RankWatch::say_goodbye() {
  send_to_all({Kind::Left, place_.rank, operations_, {}});
  const SteadyTime until = seconds_from_now(kSendSeconds);
  for (Peer& peer : peers_)
    if (peer.control.socket.is_open()) peer.control.socket.stop_sending();
  // A socket that is closed with unread data may destroy what it has sent.
  for (Peer& peer : peers_)
    while (peer.control.socket.is_open() && wait_readable(peer.control.socket, until) &&
           peer.control.reader.receive(peer.control.socket))
      while (peer.control.reader.next()) continue;
}

}  // namespace flux2
