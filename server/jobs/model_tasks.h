#pragma once

#include "server/jobs/job_queue.h"
#include "server/jobs/task_worker.h"

namespace flux2 {

// Work on the files of registered models, in the lane cpu.

// {"keys": […], "values", "quick"}: checks the models with these keys, or all. Throws HttpError.
JobQueue::Submission verify_submission(const Json& request, const AppContext& context);
void run_verify(RunningTask& task);

// {"quant", "to", "name", "part"}: converts a part of the model with that key and registers the result under the name. Throws
// HttpError.
JobQueue::Submission convert_submission(const std::string& key, const Json& request, const AppContext& context);
void run_convert_task(RunningTask& task);

}  // namespace flux2
