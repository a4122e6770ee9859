#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tensor/communicator.h"
#include "train/ranks/rank_place.h"

namespace flux2 {

struct ProcessGroupOptions {
  double join_timeout_s = 300;         // until all ranks have arrived
  double collective_timeout_s = 7200;  // for a rank that is alive but does not take part: samples and saving take long
  double heartbeat_s = 1;              // how often ranks say that they live
  double silence_s = 10;               // a rank that said nothing for so long counts as dead

  // For ranks that wait so long for each other. Operations get at least the usual time.
  static ProcessGroupOptions patient(double seconds);
};

// Several processes of one run, connected over TCP. Rank 0 listens at address:port. Every rank calls the same operations in the
// same order. Sums are added in rank order, so all ranks hold the same bits, in every run.
//
// When a rank ends, is killed or calls abort(), every operation of the others throws Network and names it within a few seconds;
// from then on the group is of no use.
class ProcessGroup : public Communicator {
 public:
  // Waits for all ranks. Throws InvalidArgument (two processes with one rank, other sizes), Network (the port is in use, rank 0
  // cannot be reached, ranks 2 and 3 did not arrive).
  static std::unique_ptr<ProcessGroup> join(const RankPlace& place, const ProcessGroupOptions& options = {});

  virtual int local_rank() const = 0;
  using Communicator::all_reduce;  // of a float tensor on any device
  virtual void all_reduce(std::span<float> values) = 0;
  virtual void all_reduce(std::span<double> values) = 0;
  virtual void broadcast(std::span<std::byte> bytes, int from = 0) = 0;  // the same size on every rank
  virtual void barrier() = 0;
  // Throws what the operations would throw if a rank has ended. For those who wait for the ranks in another way; does not wait.
  virtual void check_ranks() = 0;
  virtual void abort(const std::string& reason) = 0;  // tells the others; never throws
};

}  // namespace flux2
