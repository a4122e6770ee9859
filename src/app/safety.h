#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "app/context.h"
#include "app/resolve.h"
#include "app/safety_settings.h"
#include "app/yes_no_judge.h"

namespace flux2 {

class ImageClassifier;
struct Picture;

// Who judges. Empty functions: the models that the settings name. Tests put their own here.
struct SafetyModels {
  std::function<double(const Image& image)> nsfw;          // the classifier's score, 0 to 1
  std::function<YesNo(const std::string& prompt)> prompt;  // what the language model says; yes flags it
  std::function<YesNo(const Image& image)> image;          // the same for an image
};

// Results of checks by the hash of what was checked. The oldest ones are forgotten.
template <class T>
class RememberedChecks {
 public:
  explicit RememberedChecks(size_t most = 4096) : most_(most) {}

  std::optional<T> find(const std::string& hash) const {
    const auto found = results_.find(hash);
    return found == results_.end() ? std::nullopt : std::optional<T>(found->second);
  }
  void keep(const std::string& hash, T result) {
    if (!results_.emplace(hash, result).second) return;
    order_.push_back(hash);
    if (order_.size() <= most_) return;
    results_.erase(order_.front());
    order_.pop_front();
  }

 private:
  size_t most_;
  std::map<std::string, T> results_;
  std::deque<std::string> order_;
};

// The checks of prompts and images that the user's configuration switches on ([safety]). PictureMaker calls them for every
// request and every image, so no front end can leave them out; front ends call check_request() earlier, before a model is loaded.
// If a check cannot be done, its error ends the request: nothing passes unchecked. Thread-safe.
class Safety {
 public:
  using Cancelled = std::function<bool()>;

  // Null if nothing is switched on. Reads settings only; models are loaded when they are needed.
  static std::shared_ptr<Safety> open(const AppContext& context);

  Safety(SafetySettings settings, AppContext context, SafetyModels models = {});
  ~Safety();

  const SafetySettings& settings() const { return settings_; }
  bool checks_output() const { return settings_.images != SafetySettings::Images::Off && settings_.check.output; }

  // Checks, in this order: the prompt, the rewritten prompt, the references, the canvas. Throws Refused at the first that is
  // flagged. `model` is the one that will run. Results are remembered, so that a second call costs nothing.
  void check_request(const ResolvedRequest& resolved, const ModelFiles& model, const Cancelled& cancelled = {});

  // What becomes of a finished image. A blurred one is changed in place and loses its latents. If others need its latents
  // (`keeps_latents`), it is refused instead.
  enum class Fate { Passed, Blurred, Refused };
  Fate judge_output(Picture& picture, const ResolvedRequest& resolved, const ModelFiles& model, bool keeps_latents,
                    const Cancelled& cancelled = {});

  // One check alone. `spec` says where it runs and how strict it is.
  struct Verdict {
    bool flagged = false;
    std::string by;                    // "nsfw", "mistral" or "qwen"; who flagged it, or who looked last
    double score = -1;                 // of the classifier; −1: it was not asked
    std::optional<YesNo> answer = {};  // of the language model
  };
  Verdict judge_prompt(const std::string& prompt, const RequestSpec& spec, const ModelFiles& model,
                       const Cancelled& cancelled = {});
  Verdict judge_image(const Image& image, const RequestSpec& spec, const ModelFiles& model, const Cancelled& cancelled = {});

  // The same, but throws Refused if it is flagged, and does nothing where the settings switch such checks off. `what` names it in
  // the message: "the prompt".
  void check_text(const std::string& what, const std::string& text, const RequestSpec& spec, const ModelFiles& model,
                  const Cancelled& cancelled = {});
  void check_image(const std::string& what, const Image& image, const RequestSpec& spec, const ModelFiles& model,
                   const Cancelled& cancelled = {});

  // Frees the language models that are in the memory of a GPU.
  void release();

 private:
  struct Asked {
    const RequestSpec& spec;
    const ModelFiles& model;
    const Cancelled& cancelled;
  };
  Verdict prompt_verdict(const std::string& prompt, const Asked& asked);
  Verdict image_verdict(const Image& image, const Asked& asked);
  double nsfw_score(const Image& image);
  void answer_once(Verdict& verdict, const std::string& hash, const std::function<YesNo()>& ask);
  YesNoJudge& judge_of(DecoderFamily family, const Asked& asked);
  ModelFiles language_files(DecoderFamily family, const Asked& asked);
  void note(const std::string& what, const Verdict& verdict) const;

  SafetySettings settings_;
  AppContext context_;
  SafetyModels models_;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<ImageClassifier> classifier_;
  int64_t nsfw_class_ = 0;
  std::map<std::string, std::unique_ptr<YesNoJudge>> judges_;  // by encoder, device and quantisation
  std::map<std::string, ModelFiles> found_;                    // by family and text encoder of the request
  RememberedChecks<double> scores_;                            // of images, by the classifier
  RememberedChecks<YesNo> answers_;                            // of the language models
};

// The classifier that the settings name, or the installed one. Throws NotFound, with what to do, if there is none.
std::filesystem::path find_nsfw_model(const std::string& given, const AppContext& context);

// So blurred that nothing can be recognised: at most 16 different places on the longer side.
Image blurred_image(const Image& rgb);

// "1 image was refused by the safety check"
Error refused_images(int refused, int all);

}  // namespace flux2
