#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "train/ranks/process_group.h"
#include "train/ranks/rendezvous.h"

namespace flux2 {

// Knows whether the other ranks are alive. Every rank has a connection to rank 0 and says on it that it lives; rank 0 tells all
// when one does not.
class RankWatch {
 public:
  // `on_failure` is called once, on any thread: it must wake up whoever waits for data.
  RankWatch(const RankPlace& place, const ProcessGroupOptions& options, std::vector<RankConnections::Control> control,
            std::function<void()> on_failure);
  ~RankWatch();  // says goodbye, unless the group has failed

  uint64_t begin_operation();         // returns its number, from 1; throws Network if the group has failed
  [[noreturn]] void throw_failure();  // throws Network
  bool has_failed() const { return failed_; }

  // The data connection to a rank has ended. Throws Network, if possible with the reason that the watch learns in a moment.
  [[noreturn]] void lost(int rank);

  void fail_all(int rank, const std::string& text);  // tells the others

 private:
  struct Peer {
    int rank = 0;
    RankConnections::Control control;
    SteadyTime heard = {};
    uint64_t operations = 0;
    bool left = false;
  };

  void run(const std::stop_token& stop);
  void wait_for_messages();
  void read(Peer& peer);
  void take(Peer& peer, const RankMessage& message);
  void check_silence();
  void check_lag();
  void beat();
  void note_left(int rank, uint64_t operations);
  void check_left();
  void send_to_all(const RankMessage& message, int except = -1);
  void say_goodbye();

  RankPlace place_;
  ProcessGroupOptions options_;
  std::function<void()> on_failure_;
  std::vector<Peer> peers_;
  std::mutex sending_;  // one message at a time; also for closing a socket and for Peer::left
  std::mutex state_;
  std::condition_variable changed_;
  std::string failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<uint64_t> operations_ = 0;
  std::map<int, uint64_t> left_;  // rank → operations it took part in
  SteadyTime beaten_ = {}, level_since_ = {};
  uint64_t lowest_ = 0;
  int exceptions_;
  std::jthread thread_;
};

}  // namespace flux2
