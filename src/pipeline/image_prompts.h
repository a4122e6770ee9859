#pragma once

#include <memory>
#include <vector>

#include "model/flux2_transformer.h"
#include "nn/rope_table.h"
#include "pipeline/request.h"
#include "pipeline/session.h"

namespace flux2 {

// Throws InvalidArgument if the image prompts of a request have invalid values, fit no adapter (null: none is loaded), or cannot
// be combined with what else the request asks for.
void check_image_prompts(const Request& request, const ImagePromptNetwork* adapter);

// Tokens that all image prompts of a request together add to a pass; 0 in the decoupled form.
int64_t image_prompt_tokens(const Request& request, const ImagePromptNetwork* adapter);

// The image prompts of a request as input of the transformer, for a number of images that are made together.
class ImagePrompts {
 public:
  ImagePrompts(const Session& session, const Request& request, int64_t images);

  bool empty() const { return prompts_.empty(); }

  // Those that count in a step, counted from 0; null: none. The same object as long as they are the same.
  std::shared_ptr<const ImagePromptInputs> at(size_t step);

  // Whether others count in this step than in the one before.
  bool change_at(size_t step) const;

  std::vector<TokenPosition> positions(const ImagePromptInputs* chosen) const;

 private:
  struct Prompt {
    size_t first = 0, end = 0;   // steps in which it counts
    Tensor tokens;               // [images, tokens, H] times the strength, in the form of tokens
    std::vector<KeyValue> keys;  // else
  };

  int64_t references_, tokens_ = 0;  // of one image prompt
  std::vector<Prompt> prompts_;
  std::vector<bool> chosen_;
  std::shared_ptr<const ImagePromptInputs> inputs_;
};

}  // namespace flux2
