#pragma once

#include "engine/engine.h"
#include "tests/support/scene_critic.h"

namespace flux2::test {

// How a model answers a question. 0 means the model's own default.
struct AnswerSettings {
  int width = 0, height = 0, steps = 0;
  double cfg = 0;
  uint64_t seed = 11;
};

// A model in a folder that answers the critic's questions with images.
class SceneModel {
 public:
  SceneModel(const std::filesystem::path& folder, const std::string& device = "cpu");

  const ModelFiles& files() const { return files_; }
  Image answer(const ScoreCase& question, const SpriteSheet& sheet, const AnswerSettings& settings = {});

 private:
  Engine engine_;
  ModelFiles files_;
  std::unique_ptr<ModelSession> session_;
};

}  // namespace flux2::test
