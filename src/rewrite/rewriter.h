#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "image/image.h"

namespace flux2 {

// Called while a language model writes, with all that it has written so far and the number of tokens. A second attempt begins
// again with nothing.
using OnText = std::function<void(std::string_view text, int64_t tokens)>;

// What a language model is asked.
struct RewriteQuestion {
  std::string prompt;
  bool is_edit = false;            // the prompt says how to change images
  std::vector<Image> images = {};  // RGB; those that it changes, "image 1" first
  uint64_t seed = 0;
  bool is_caption = false;  // the image is to be described; the prompt is what the user adds about it, and may be empty
  OnText on_text = {};      // not every rewriter calls it

  // What the user says: the prompt, or the request for a description with it.
  std::string text() const;
};

struct RewriteAnswer {
  std::string text;  // as the model wrote it
  std::optional<int64_t> tokens = {};
  bool is_cut = false;  // it ends at the limit of its length
};

// A language model that rewrites prompts, here or on another machine.
class Rewriter {
 public:
  using Cancelled = std::function<bool()>;

  virtual ~Rewriter() = default;

  // Throws Network or BadFile if there is no answer, Cancelled if `cancelled` said so. May ask `cancelled` at any time.
  virtual RewriteAnswer answer(const RewriteQuestion& question, const Cancelled& cancelled) = 0;

  virtual std::string way() const = 0;    // "ollama"
  virtual std::string model() const = 0;  // as its service calls it
  virtual std::string place() const = 0;  // where prompts are sent to, for people; empty: they stay here
  virtual bool sees_images() const = 0;
  virtual void release() {}  // frees what it holds in memory until the next question
};

struct RewrittenPrompt {
  std::string prompt;
  std::optional<int64_t> tokens = {};
};

// Asks for a better prompt. If the answer lacks a text that the prompt quotes, it asks once more with another seed. Throws the
// errors of the rewriter, and Incompatible if quoted text is still missing or the answer has more than `max_bytes`. Messages
// never quote prompts.
RewrittenPrompt rewrite_prompt(Rewriter& rewriter, RewriteQuestion question, size_t max_bytes,
                               const Rewriter::Cancelled& cancelled, const Log& log);

// A description of an image. `about` are words of the user that may help, or empty.
struct DescribeOptions {
  std::string about = {};
  uint64_t seed = 0;
  bool one_line = false;  // line breaks become spaces, as caption files for training have it
  size_t max_bytes = size_t{16} << 10;
  OnText on_text = {};
};

// Asks for one. Throws the errors of the rewriter, and Incompatible if it cannot look at images or the answer is too long.
RewrittenPrompt describe_image(Rewriter& rewriter, const Image& image, const DescribeOptions& options,
                               const Rewriter::Cancelled& cancelled, const Log& log);

}  // namespace flux2
