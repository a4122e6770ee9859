#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "hub/model_files.h"
#include "server/http/message.h"

namespace flux2 {

// A request of the OpenAI images API, translated. Its errors are HttpError with `param`, as the clients of this family expect.
struct OpenAiRequest {
  Json native = Json::object();  // members of a native job request, without images
  std::string model;             // as the client wrote it; empty: none
  std::string quality = "high";  // low, medium or high, as the answer says it
  int64_t quality_steps = 0;     // steps that `quality` asks of a model that is not distilled; 0: the model's own
  std::string output_format = "png";
  std::string user;
  bool as_url = false;
  bool stream = false;
  int partial_images = 0;
  int preview_side = 512;
  std::optional<bool> high_fidelity;  // input_fidelity of edits
};

// The members of generations, which edits share. null equals absent and unknown members are ignored.
OpenAiRequest parse_openai_request(const Json& body);

// The text parts of a form as the JSON body that they stand for: numbers and booleans are read as their members' types,
// "flux2[seed]" and "flux2[loras][0][name]" become nested values. Files are left out.
Json openai_body_of_form(const std::vector<FormPart>& parts);

// Whether a part is one of the images to edit: image, image[], image[0], …
bool is_openai_image_part(std::string_view name);

// The images of a JSON body of edits: base64 texts, data URLs or "asset:ID", in order.
std::vector<std::string> openai_images(const Json& body);
std::optional<std::string> openai_mask(const Json& body);

// What depends on the model: steps of a quality, and guidance that a distilled model does not take.
void apply_model_rules(OpenAiRequest& request, const ModelFiles& model);

// How input_fidelity limits `count` references; empty: as usual.
std::string reference_pixels(const OpenAiRequest& request, size_t count);

// Whether it is a name of OpenAI's own image models.
bool is_openai_model_name(std::string_view name);

}  // namespace flux2
