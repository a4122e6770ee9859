#include "train/ranks/device_sums.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace flux2 {

namespace {

// One line of at most kLineBytes − 1 bytes from every rank.
constexpr size_t kLineBytes = 200;
std::vector<std::string> lines_of_all(ProcessGroup& group, const std::string& own) {
  std::vector<std::string> lines;
  for (int rank = 0; rank < group.size(); ++rank) {
    std::string line = rank == group.rank() ? own.substr(0, kLineBytes - 1) : std::string();
    line.resize(kLineBytes);
    group.broadcast(std::as_writable_bytes(std::span(line)), rank);
    lines.emplace_back(line.c_str());
  }
  return lines;
}

// The same on every rank.
std::string first_problem(ProcessGroup& group, const std::string& own) {
  const std::vector<std::string> problems = lines_of_all(group, own);
  for (size_t rank = 0; rank < problems.size(); ++rank)
    if (!problems[rank].empty()) return group.size() == 1 ? problems[rank] : fmt::format("rank {}: {}", rank, problems[rank]);
  return {};
}

std::string shared_device(ProcessGroup& group, const std::string& own) {
  std::map<std::string, size_t> owners;
  const std::vector<std::string> ids = lines_of_all(group, own);
  for (size_t rank = 0; rank < ids.size(); ++rank)
    if (const auto [found, added] = owners.emplace(ids[rank], rank); !added)
      return fmt::format("ranks {} and {} share one GPU", found->second, rank);
  return {};
}

}  // namespace

DeviceSums open_device_sums(ProcessGroup& group, const DeviceSumsOffer& offer, double timeout_s) {
  if (std::string problem = first_problem(group, offer.problem); !problem.empty()) return {nullptr, problem};
  if (std::string problem = shared_device(group, offer.device_id); !problem.empty()) return {nullptr, problem};
  DeviceSums sums;
  std::string failure;
  try {
    sums.communicator = offer.open({.rank = group.rank(),
                                    .size = group.size(),
                                    .share = [&](std::span<std::byte> bytes) { group.broadcast(bytes); },
                                    .check_ranks = [&] { group.check_ranks(); },
                                    .open_timeout_s = timeout_s});
  } catch (const Error& e) {
    if (e.code() == ErrorCode::Network || e.code() == ErrorCode::Cancelled) throw;  // a rank has ended: sockets would not help
    failure = e.what();
  }
  sums.problem = first_problem(group, failure);
  if (!sums.problem.empty()) sums.communicator.reset();
  return sums;
}

void sum_on_device(StreamCommunicator& ranks, Stream& stream, std::span<const Shape> parameters, std::vector<Tensor>& gradients) {
  require(parameters.size() == gradients.size(), "{} gradients for {} parameters", gradients.size(), parameters.size());
  std::vector<Tensor> summed;
  std::vector<const void*> seen;
  for (size_t p = 0; p < gradients.size(); ++p) {
    Tensor& g = gradients[p];
    if (!g.defined()) {
      if (ranks.size() == 1) continue;
      g = Tensor::empty(stream, DType::F32, parameters[p]);
      g.fill(0);
    }
    // Two parameters may have got the same tensor as their gradient; it must not be summed twice.
    const bool shared = std::find(seen.begin(), seen.end(), g.raw()) != seen.end();
    seen.push_back(g.raw());
    g = shared ? g.cast(DType::F32).cloned() : g.cast(DType::F32).contiguous();
    summed.push_back(g);
  }
  ranks.all_reduce(summed);
  ranks.wait();
}

}  // namespace flux2
