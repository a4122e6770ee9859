#include "pipeline/image_prompts.h"

#include <algorithm>
#include <cmath>

#include "ops/arithmetic.h"
#include "ops/view.h"
#include "pipeline/latents.h"

namespace flux2 {

namespace {

constexpr size_t kMostImagePrompts = 64;
constexpr double kLargestStrength = 10;

bool counts(const ImagePrompt& prompt) { return prompt.strength != 0; }

int64_t count_of(const Request& request) {
  return std::count_if(request.image_prompts.begin(), request.image_prompts.end(), counts);
}

Tensor repeated(const Tensor& x, int64_t n) { return x.expanded(x.shape().with(0, n)).contiguous(); }

}  // namespace

void check_image_prompts(const Request& r, const ImagePromptNetwork* adapter) {
  if (count_of(r) == 0) return;
  check(adapter != nullptr, "the request has an image prompt, but no image-prompt adapter is loaded");
  check(r.image_prompts.size() <= kMostImagePrompts, "{} image prompts: at most {} are possible", r.image_prompts.size(),
        kMostImagePrompts);
  check(!r.references_at_zero, "image prompts cannot be combined with references that are conditioned on time 0");
  check(adapter->config.form == ImagePromptForm::Decoupled || r.regions.empty(),
        "this image-prompt adapter adds tokens to the image, which cannot be combined with prompts for regions");
  for (const ImagePrompt& prompt : r.image_prompts) {
    check(std::abs(prompt.strength) <= kLargestStrength, "the strength {} of an image prompt is not a number from {} to {}",
          prompt.strength, -kLargestStrength, kLargestStrength);
    check(prompt.from >= 0 && prompt.from < prompt.to && prompt.to <= 1,
          "an image prompt counts from {} to {} of the steps; two rising numbers from 0 to 1 are needed", prompt.from, prompt.to);
    check(static_cast<int64_t>(prompt.feature.size()) == adapter->config.feature_width,
          "the vector of an image prompt has {} values; the adapter reads {}", prompt.feature.size(),
          adapter->config.feature_width);
    check(std::all_of(prompt.feature.begin(), prompt.feature.end(), [](float v) { return std::isfinite(v); }),
          "the vector of an image prompt contains values that are not numbers");
  }
}

int64_t image_prompt_tokens(const Request& request, const ImagePromptNetwork* adapter) {
  if (!adapter || adapter->config.form == ImagePromptForm::Decoupled) return 0;
  return count_of(request) * adapter->config.tokens;
}

ImagePrompts::ImagePrompts(const Session& session, const Request& request, int64_t images)
    : references_(static_cast<int64_t>(request.references.size())) {
  if (count_of(request) == 0) return;
  const ImagePromptNetwork& network = *session.image_prompt;
  tokens_ = network.config.tokens;
  const auto steps = static_cast<double>(request.sigmas().size() - 1);
  for (const ImagePrompt& prompt : request.image_prompts) {
    if (!counts(prompt)) continue;
    const Tensor feature =
        Tensor::from<float>(*session.stream, session.activations, {1, network.config.feature_width}, prompt.feature);
    const Tensor tokens = network.tokens(feature);
    Prompt made{.first = static_cast<size_t>(std::floor(prompt.from * steps)),
                .end = static_cast<size_t>(std::ceil(prompt.to * steps)),
                .tokens = {},
                .keys = {}};
    if (network.config.form == ImagePromptForm::Tokens) made.tokens = repeated(prompt.strength * tokens, images);
    else
      for (const KeyValue& block : network.keys(tokens))
        made.keys.push_back({repeated(block.k, images), repeated(prompt.strength * block.v, images)});
    prompts_.push_back(std::move(made));
  }
}

std::shared_ptr<const ImagePromptInputs> ImagePrompts::at(size_t step) {
  std::vector<bool> now;
  for (const Prompt& prompt : prompts_) now.push_back(step >= prompt.first && step < prompt.end);
  if (now == chosen_) return inputs_;
  chosen_ = now;
  auto inputs = std::make_shared<ImagePromptInputs>();
  std::vector<Tensor> tokens;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    if (!now[i]) continue;
    if (prompts_[i].tokens.defined()) tokens.push_back(prompts_[i].tokens);
    else inputs->keys.push_back(prompts_[i].keys);
  }
  if (!tokens.empty()) inputs->tokens = concat(tokens, 1);
  const bool any = inputs->tokens.defined() || !inputs->keys.empty();
  inputs_ = any ? std::move(inputs) : nullptr;
  return inputs_;
}

bool ImagePrompts::change_at(size_t step) const {
  return step > 0 && std::any_of(prompts_.begin(), prompts_.end(),
                                 [&](const Prompt& prompt) { return step == prompt.first || step == prompt.end; });
}

std::vector<TokenPosition> ImagePrompts::positions(const ImagePromptInputs* chosen) const {
  if (!chosen || !chosen->tokens.defined()) return {};
  return image_prompt_positions(references_, chosen->tokens.dim(1) / tokens_, tokens_);
}

}  // namespace flux2
