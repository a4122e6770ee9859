#include "train/ranks/process_group.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "tensor/tensor.h"
#include "train/ranks/rank_watch.h"
#include "train/ranks/rendezvous.h"

namespace flux2 {

namespace {

enum class Operation : uint32_t { SumFloat = 1, SumDouble, Broadcast };

// Sent along the chain before the data: ranks that do different things say so instead of mixing up their bytes.
struct OperationHead {
  uint64_t number = 0, bytes = 0;
  Operation operation = Operation::SumFloat;
  int32_t from = 0;
  bool operator==(const OperationHead&) const = default;
};
static_assert(sizeof(OperationHead) == 24);

const char* name_of_operation(Operation operation) {
  return operation == Operation::SumFloat    ? "a sum of floats"
         : operation == Operation::SumDouble ? "a sum of doubles"
                                             : "a broadcast";
}

// One direction of one connection during an operation.
struct Lane {
  const TcpSocket* socket = nullptr;
  int peer = 0;
  bool sends = false;
  std::function<std::span<std::byte>()> window;  // what may move now; empty: wait for another lane
  std::function<void(size_t)> moved;
  std::function<bool()> done;
};

// The ranks form a chain. Sums travel up: each rank adds its own values to what arrives from below, so that every sum is
// ((r0 + r1) + r2) + … . The last rank has the result, and it travels down. Both happen at the same time in pieces, and each
// connection carries the values once in each direction, whatever the number of ranks.
class ChainGroup final : public ProcessGroup {
 public:
  ChainGroup(const RankPlace& place, const ProcessGroupOptions& options)
      : place_(place), connections_(meet(place, options.join_timeout_s)) {
    watch_ = std::make_unique<RankWatch>(place, options, std::move(connections_.control), [this] {
      for (const TcpSocket* socket : {&connections_.previous, &connections_.next})
        if (socket->is_open()) socket->stop();
    });
  }

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  int local_rank() const override { return place_.local_rank; }

  void all_reduce(const Tensor& x) override {
    require(is_float(x.dtype()), "ranks cannot add values of type {}", name_of(x.dtype()));
    if (x.on_host_only() && x.dtype() == DType::F32 && x.is_contiguous()) {
      all_reduce(std::span(x.data<float>(), static_cast<size_t>(x.numel())));
      return;
    }
    std::vector<float> values = x.to_floats();
    all_reduce(std::span(values));
    x.copy_from(Tensor::from(x.stream(), DType::F32, x.shape(), std::span<const float>(values)));
  }

  void all_reduce(std::span<float> values) override { sum(values, Operation::SumFloat); }
  void all_reduce(std::span<double> values) override { sum(values, Operation::SumDouble); }

  void broadcast(std::span<std::byte> bytes, int from) override {
    check(from >= 0 && from < size(), "rank {} is not one of {} ranks", from, size());
    begin({0, bytes.size(), Operation::Broadcast, from});
    const bool from_below = from < rank();
    size_t received = from == rank() ? bytes.size() : 0, sent_up = 0, sent_down = 0;
    std::vector<Lane> lanes;
    if (from != rank())
      lanes.push_back({from_below ? &connections_.previous : &connections_.next, from_below ? rank() - 1 : rank() + 1, false,
                       [&] { return bytes.subspan(received); }, [&](size_t n) { received += n; },
                       [&] { return received == bytes.size(); }});
    if (has_next() && from <= rank())
      lanes.push_back({&connections_.next, rank() + 1, true, [&] { return bytes.subspan(sent_up, received - sent_up); },
                       [&](size_t n) { sent_up += n; }, [&] { return sent_up == bytes.size(); }});
    if (has_previous() && from >= rank())
      lanes.push_back({&connections_.previous, rank() - 1, true, [&] { return bytes.subspan(sent_down, received - sent_down); },
                       [&](size_t n) { sent_down += n; }, [&] { return sent_down == bytes.size(); }});
    move(lanes);
  }

  void barrier() override {
    std::array<float, 1> nothing = {};
    all_reduce(std::span<float>(nothing));
  }

  void check_ranks() override {
    if (watch_->has_failed()) watch_->throw_failure();
  }

  void abort(const std::string& reason) override { watch_->fail_all(rank(), fmt::format("rank {}: {}", rank(), reason)); }

 private:
  bool has_previous() const { return rank() > 0; }
  bool has_next() const { return rank() + 1 < size(); }

  template <class T>
  void sum(std::span<T> values, Operation operation) {
    constexpr size_t kPiece = size_t{128} << 10;
    const std::span<std::byte> bytes = std::as_writable_bytes(values);
    begin({0, bytes.size(), operation, 0});
    std::array<T, kPiece / sizeof(T)> below;  // a piece of the sum of the ranks below
    const std::span<std::byte> piece = std::as_writable_bytes(std::span(below));
    size_t filled = 0;                                 // bytes of the piece
    size_t added = has_previous() ? 0 : bytes.size();  // up to here, this rank's values are in
    size_t sent_up = 0, received = 0, sent_down = 0;
    const auto length = [&] { return std::min(piece.size(), bytes.size() - added); };
    std::vector<Lane> lanes;
    if (has_previous())
      lanes.push_back({&connections_.previous, rank() - 1, false, [&] { return piece.subspan(filled, length() - filled); },
                       [&](size_t n) {
                         filled += n;
                         if (filled < length()) return;
                         const size_t first = added / sizeof(T), count = filled / sizeof(T);
                         for (size_t i = 0; i < count; ++i) values[first + i] = below[i] + values[first + i];
                         added += std::exchange(filled, 0);
                       },
                       [&] { return added == bytes.size(); }});
    if (has_next()) {
      lanes.push_back({&connections_.next, rank() + 1, true, [&] { return bytes.subspan(sent_up, added - sent_up); },
                       [&](size_t n) { sent_up += n; }, [&] { return sent_up == bytes.size(); }});
      lanes.push_back({&connections_.next, rank() + 1, false, [&] { return bytes.subspan(received, sent_up - received); },
                       [&](size_t n) { received += n; }, [&] { return received == bytes.size(); }});
    }
    if (has_previous())
      lanes.push_back({&connections_.previous, rank() - 1, true,
                       [&] { return bytes.subspan(sent_down, (has_next() ? received : added) - sent_down); },
                       [&](size_t n) { sent_down += n; }, [&] { return sent_down == bytes.size(); }});
    move(lanes);
  }

  // Compares what the ranks are about to do.
  void begin(OperationHead head) {
    head.number = watch_->begin_operation();
    OperationHead theirs;
    const auto mine = std::as_writable_bytes(std::span(&head, 1)), other = std::as_writable_bytes(std::span(&theirs, 1));
    size_t sent = 0, received = 0;
    std::vector<Lane> lanes;
    if (has_previous())
      lanes.push_back({&connections_.previous, rank() - 1, false, [&] { return other.subspan(received); },
                       [&](size_t n) { received += n; }, [&] { return received == other.size(); }});
    if (has_next())
      lanes.push_back({&connections_.next, rank() + 1, true, [&] { return mine.subspan(sent); }, [&](size_t n) { sent += n; },
                       [&] { return sent == mine.size(); }});
    move(lanes);
    if (!has_previous() || theirs == head) return;
    watch_->fail_all(
        rank(), fmt::format("ranks {} and {} do different things: {} of {} bytes and {} of {} bytes", rank() - 1, rank(),
                            name_of_operation(theirs.operation), theirs.bytes, name_of_operation(head.operation), head.bytes));
    watch_->throw_failure();
  }

  void move(std::vector<Lane>& lanes) {
    for (;;) {
      bool done = true, moved = false;
      std::vector<pollfd> waiting;
      for (Lane& lane : lanes) {
        if (lane.done()) continue;
        done = false;
        const auto window = lane.window();
        if (window.empty()) continue;
        const auto n = lane.sends ? lane.socket->send_some(window) : lane.socket->receive_some(window);
        if (!n) watch_->lost(lane.peer);
        moved = moved || *n > 0;
        if (*n > 0) lane.moved(*n);
        else waiting.push_back({lane.socket->fd(), static_cast<short>(lane.sends ? POLLOUT : POLLIN), 0});
      }
      if (done) return;
      if (watch_->has_failed()) watch_->throw_failure();
      if (!moved) ::poll(waiting.data(), waiting.size(), 1000);
    }
  }

  RankPlace place_;
  RankConnections connections_;
  std::unique_ptr<RankWatch> watch_;
};

// A run of one process.
class SingleGroup final : public ProcessGroup {
 public:
  explicit SingleGroup(const RankPlace& place) : local_rank_(place.local_rank) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return local_rank_; }
  void all_reduce(const Tensor&) override {}
  void all_reduce(std::span<float>) override {}
  void all_reduce(std::span<double>) override {}
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
  void check_ranks() override {}
  void abort(const std::string&) override {}

 private:
  int local_rank_;
};

}  // namespace

ProcessGroupOptions ProcessGroupOptions::patient(double seconds) {
  ProcessGroupOptions options;
  options.join_timeout_s = seconds;
  options.collective_timeout_s = std::max(options.collective_timeout_s, seconds);
  return options;
}

std::unique_ptr<ProcessGroup> ProcessGroup::join(const RankPlace& place, const ProcessGroupOptions& options) {
  if (place.size == 1) return std::make_unique<SingleGroup>(place);
  return std::make_unique<ChainGroup>(place, options);
}

}  // namespace flux2
