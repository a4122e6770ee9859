#pragma once

#include "base/json.h"
#include "server/http/listener.h"
#include "server/jobs/event_batches.h"

namespace flux2 {

// Lines of a structured log. They contain no prompts, no keys and no query of an address.
Json request_line_json(const RequestLine& line);
Json job_line_json(const Event& event);  // a change of a job's state
Json message_line_json(const std::string& level, const std::string& text);

// The same for people: "12:00:01.250 GET /healthz 200 15 B 0.4 ms req_…"
std::string log_line_text(const Json& line);

}  // namespace flux2
