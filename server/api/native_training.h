#pragma once

#include "server/api/api_context.h"
#include "server/http/router.h"
#include "server/jobs/training_runs.h"

namespace flux2 {

// /api/v1/training: runs, their metrics, samples and checkpoints. Everything must outlive the listener.
void add_training_routes(Router& router, ApiContext& api, TrainingRuns& runs);

// /api/v1/training/datasets: looking at datasets and writing captions, in the allowed folders alone.
void add_dataset_routes(Router& router, ApiContext& api, TrainingRuns& runs);

}  // namespace flux2
