#pragma once

#include <string>

#include "base/json.h"
#include "server/api/openai_request.h"
#include "server/http/errors.h"
#include "server/jobs/job_queue.h"

namespace flux2 {

// What the answers of one request share.
struct OpenAiAnswer {
  std::string output_format = "png", quality = "high";
  bool as_url = false;
  std::string file_prefix;  // "http://127.0.0.1:8190/v1/images/files/"
  std::string event;        // "image_generation" or "image_edit"
};

// Tokens as the worker counted them.
Json openai_usage(const Job& job);

// The answer to generations, edits and variations.
Json openai_images_answer(const OpenAiAnswer& answer, const Job& job, AssetStore& assets);

// The data of the last event for one image, and of a partial image that was encoded before.
Json openai_completed_event(const OpenAiAnswer& answer, const Job& job, const JobImage& image, AssetStore& assets);
Json openai_partial_event(const OpenAiAnswer& answer, const std::string& base64, int partial_index, int image_index,
                          bool several_images, int width, int height);
// The data of an event `error`.
Json openai_error_event(const HttpError& error);

// The name under which an image is served, and back.
std::string openai_file_name(const Job& job, const JobImage& image, const std::string& format);
struct OpenAiFile {
  std::string job;  // id without prefix
  int index = 0;
};
std::optional<OpenAiFile> openai_file_named(std::string_view name);

}  // namespace flux2
