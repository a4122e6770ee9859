#include "train/ranks/rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;
using Kind = RankMessage::Kind;

SteadyTime after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string list_of_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

// Where the successor of a rank connects to.
struct DataAddress {
  std::string host;
  int port = 0;
};

RankMessage hello_from(const RankPlace& place, int data_port) {
  return {Kind::Hello, place.rank, static_cast<uint64_t>(place.size), fmt::format("{}\n{}", data_port, place.token)};
}

struct Hello {
  int rank = 0, size = 0, data_port = 0;
  std::string token;
};

Hello read_hello(const RankMessage& message) {
  Hello hello;
  hello.rank = message.rank;
  hello.size = message.number > 1'000'000 ? -1 : static_cast<int>(message.number);
  const size_t line = message.text.find('\n');
  std::from_chars(message.text.data(), message.text.data() + std::min(line, message.text.size()), hello.data_port);
  if (line != message.text.npos) hello.token = message.text.substr(line + 1);
  return hello;
}

// Rank 0 while it waits for the others.
class Reception {
 public:
  Reception(const RankPlace& place, double timeout_s)
      : place_(place),
        timeout_s_(timeout_s),
        until_(after(timeout_s)),
        listener_(listen_at(place.address, place.port)),
        data_listener_(listen_at(listener_.local_address(), 0)),
        addresses_(static_cast<size_t>(place.size)) {
    connections_.control.resize(static_cast<size_t>(place.size));
    addresses_[0] = {place.address, data_listener_.local_port()};
  }

  RankConnections run() {
    while (!missing().empty()) {
      if (Clock::now() >= until_) give_up();
      wait();
      for (TcpSocket socket = accept_from(listener_); socket.is_open(); socket = accept_from(listener_))
        arriving_.push_back({std::move(socket), {}});
      read_arriving();
      forget_ended();
    }
    welcome_all();
    if (place_.size > 1) connections_.next = accept_successor(data_listener_, place_, until_);
    return std::move(connections_);
  }

  static TcpSocket accept_successor(const TcpSocket& listener, const RankPlace& place, SteadyTime until) {
    while (wait_readable(listener, until)) {
      TcpSocket socket = accept_from(listener);
      MessageReader reader;
      while (socket.is_open() && wait_readable(socket, std::min(until, after(10)))) {
        const bool open = reader.receive(socket);
        if (const auto message = reader.next()) {
          const Hello hello = read_hello(*message);
          if (message->kind == Kind::Hello && hello.rank == place.rank + 1 && hello.token == place.token) return socket;
          break;
        }
        if (!open) break;
      }
    }
    fail(ErrorCode::Network, "rank {} did not connect to rank {}", place.rank + 1, place.rank);
  }

 private:
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int r = 1; r < place_.size; ++r)
      if (!connections_.control[static_cast<size_t>(r)].socket.is_open()) ranks.push_back(r);
    return ranks;
  }

  [[noreturn]] void give_up() {
    const auto ranks = missing();
    const std::string text = fmt::format("{} did not arrive within {:.0f} s", list_of_ranks(ranks), timeout_s_);
    for (auto& c : connections_.control)
      if (c.socket.is_open()) send_message(c.socket, {Kind::Reject, 0, 0, text}, after(1));
    throw Error(ErrorCode::Network, text, "check that these processes were started and can reach rank 0");
  }

  void wait() const {
    std::vector<pollfd> waiting = {{listener_.fd(), POLLIN, 0}};
    for (const auto& c : arriving_) waiting.push_back({c.socket.fd(), POLLIN, 0});
    ::poll(waiting.data(), waiting.size(), 100);
  }

  void read_arriving() {
    for (auto& c : arriving_) {
      const bool open = c.reader.receive(c.socket);
      if (const auto message = c.reader.next()) take(c, *message);
      else if (!open) c.socket.close();
    }
    std::erase_if(arriving_, [](const auto& c) { return !c.socket.is_open(); });
  }

  void take(RankConnections::Control& arrival, const RankMessage& message) {
    const Hello hello = read_hello(message);
    std::string refusal;
    if (message.kind != Kind::Hello || hello.token != place_.token)
      refusal = "this process belongs to another run that uses the same port";
    else if (hello.size != place_.size)
      refusal = fmt::format("this process has WORLD_SIZE {}, but rank 0 has {}", hello.size, place_.size);
    else if (hello.rank < 1 || hello.rank >= place_.size ||
             connections_.control[static_cast<size_t>(hello.rank)].socket.is_open())
      refusal = fmt::format("rank {} is there already; two processes have the same RANK", hello.rank);
    if (!refusal.empty()) {
      send_message(arrival.socket, {Kind::Reject, 0, 1, refusal}, after(1));
      arrival.socket.close();
      return;
    }
    addresses_[static_cast<size_t>(hello.rank)] = {arrival.socket.peer_address(), hello.data_port};
    connections_.control[static_cast<size_t>(hello.rank)] = std::move(arrival);
  }

  // A rank that crashed while it waited may be started again.
  void forget_ended() {
    for (auto& c : connections_.control)
      if (c.socket.is_open() && !c.reader.receive(c.socket)) c.socket.close();
  }

  void welcome_all() {
    std::string table;
    for (const DataAddress& a : addresses_) table += fmt::format("{} {}\n", a.host, a.port);
    for (auto& c : connections_.control)
      if (c.socket.is_open()) send_message(c.socket, {Kind::Welcome, 0, 0, table}, after(10));
  }

  const RankPlace& place_;
  double timeout_s_;
  SteadyTime until_;
  TcpSocket listener_, data_listener_;
  std::vector<DataAddress> addresses_;  // by rank
  std::vector<RankConnections::Control> arriving_;
  RankConnections connections_;
};

RankMessage wait_welcome(RankConnections::Control& control, SteadyTime until) {
  for (;;) {
    if (const auto message = control.reader.next()) return *message;
    if (!wait_readable(control.socket, until)) fail(ErrorCode::Network, "not all ranks arrived in time");
    if (!control.reader.receive(control.socket)) {
      if (const auto last = control.reader.next()) return *last;
      fail(ErrorCode::Network, "rank 0 has ended before all ranks had arrived");
    }
  }
}

RankConnections visit(const RankPlace& place, double timeout_s) {
  const SteadyTime until = after(timeout_s);
  RankConnections connections;
  connections.control.resize(1);
  auto& control = connections.control[0];
  control.socket = connect_to(place.address, place.port, "rank 0", until);
  const TcpSocket data_listener = listen_at(control.socket.local_address(), 0);
  send_message(control.socket, hello_from(place, data_listener.local_port()), until);
  // Rank 0 may have been started later, and knows better which ranks are missing.
  const RankMessage answer = wait_welcome(control, until + std::chrono::seconds(30));
  if (answer.kind == Kind::Reject)
    fail(answer.number == 1 ? ErrorCode::InvalidArgument : ErrorCode::Network, "{}", printable(answer.text));
  if (answer.kind != Kind::Welcome)
    fail(ErrorCode::Network, "the process at port {} is not rank 0 of a training run", place.port);
  std::istringstream table(answer.text);
  DataAddress previous;
  for (int r = 0; r < place.rank; ++r) table >> previous.host >> previous.port;
  connections.previous = connect_to(previous.host, previous.port, fmt::format("rank {}", place.rank - 1), after(30));
  send_message(connections.previous, hello_from(place, 0), after(10));
  if (place.rank + 1 < place.size) connections.next = Reception::accept_successor(data_listener, place, after(30));
  return connections;
}

}  // namespace

RankConnections meet(const RankPlace& place, double timeout_s) {
  require(place.rank >= 0 && place.rank < place.size, "rank {} of {}", place.rank, place.size);
  return place.rank == 0 ? Reception(place, timeout_s).run() : visit(place, timeout_s);
}

}  // namespace flux2
