#pragma once

#include <memory>
#include <optional>

#include "base/log.h"
#include "record/request_spec.h"
#include "tensor/device.h"
#include "tensor/stream_communicator.h"
#include "train/ranks/process_group.h"
#include "train/train_options.h"

namespace flux2 {

// The same request on the GPU of this rank, unless it names one.
RequestSpec on_own_gpu(RequestSpec spec, const std::optional<RankPlace>& place);

// The group of this run: null for one process, unless ddp_backend asks for NCCL.
std::unique_ptr<ProcessGroup> join_ranks(const TrainOptions& options, const std::optional<RankPlace>& place);

// How gradients are summed: by NCCL on the GPUs, or, if this is null, through the group's sockets. ddp_backend decides; `auto`
// takes NCCL if every rank has a GPU of its own, and a notice says why if it does not. `group` must outlive the result; null: one
// process.
std::shared_ptr<StreamCommunicator> open_gradient_sums(const TrainOptions& options, ProcessGroup* group,
                                                       const std::shared_ptr<Stream>& stream, const Log& log);

}  // namespace flux2
