#include "app/training_ranks.h"

#include "base/error.h"
#include "engine/gpu_ranks.h"
#include "train/ranks/device_sums.h"

namespace flux2 {

namespace {

[[noreturn]] void refuse_nccl(const std::string& problem) {
  throw Error(ErrorCode::Device, fmt::format("NCCL cannot sum the gradients: {}", problem),
              Hint("sum them on the host with {0}", {set_option("ddp_backend", "sockets")}));
}

double seconds_of_patience(const TrainOptions& options) { return 60.0 * static_cast<double>(options.ddp_timeout); }

}  // namespace

RequestSpec on_own_gpu(RequestSpec spec, const std::optional<RankPlace>& place) {
  if (place) spec.device = device_of_rank(spec.device.value_or("auto"), place->local_rank);
  return spec;
}

std::unique_ptr<ProcessGroup> join_ranks(const TrainOptions& options, const std::optional<RankPlace>& place) {
  const RankPlace own = place.value_or(RankPlace{});
  const bool nccl = options.ddp_backend == "nccl";
  if (own.size == 1 && !nccl) return nullptr;
  // Before anything is computed, although all ranks must agree later.
  if (const std::string problem = nccl ? gpu_sums().problem : std::string(); !problem.empty()) refuse_nccl(problem);
  return ProcessGroup::join(own, ProcessGroupOptions::patient(seconds_of_patience(options)));
}

std::shared_ptr<StreamCommunicator> open_gradient_sums(const TrainOptions& options, ProcessGroup* group,
                                                       const std::shared_ptr<Stream>& stream, const Log& log) {
  if (!group || options.ddp_backend == "sockets") return nullptr;
  DeviceSumsOffer offer;
  offer.device_id = gpu_identity(*stream);
  offer.problem = offer.device_id.empty() ? stream->device().name() + " is not an NVIDIA GPU" : gpu_sums().problem;
  offer.open = [&](const StreamCommunicatorOptions& place) { return open_gpu_sums(stream, place); };
  const DeviceSums sums = open_device_sums(*group, offer, seconds_of_patience(options));
  if (!sums.communicator && options.ddp_backend == "nccl") refuse_nccl(sums.problem);
  if (group->rank() != 0) return sums.communicator;
  if (sums.communicator)
    log.info("gradients are summed by {} over {} {}", sums.communicator->name(), group->size(),
             group->size() == 1 ? "GPU" : "GPUs");
  else if (!stream->device().is_host()) log.warn("gradients are summed on the host, which is slower: {}", sums.problem);
  return sums.communicator;
}

}  // namespace flux2
