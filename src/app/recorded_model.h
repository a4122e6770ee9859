#pragma once

#include <string>

#include "app/context.h"
#include "record/generation_record.h"

namespace flux2 {

// Which of the models that are here made an image.
struct RecordedModel {
  std::string name;      // as RequestSpec::model names it; empty: the configured one, or the image does not say which, or the
                         // model is not here
  std::string problem;   // a sentence: why `name` is empty or another file than the one that made the image
  bool is_file = false;  // `name` is the path of a file beside the image
  bool is_base = false;  // it was treated as a base model because the request said so

  // Sets the model of a request, as a name only unless it is that file, and whether it is a base model.
  void set(RequestSpec& spec) const;
};

// Looks for the model by the hash and the name that the record has: first the model and the transformer that are configured in
// `configured`, which have no name here if one of them made the image, then the installed and the bundled models, and the files
// beside the image. Anybody may have written the record: it names models, never paths. Large files whose hash nobody computed are
// found by name alone.
RecordedModel find_recorded_model(const GenerationRecord& record, const std::string& image, const AppContext& context,
                                  const RequestSpec& configured = {});

}  // namespace flux2
