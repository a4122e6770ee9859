#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "image/image.h"
#include "train/data/caption_tokens.h"
#include "train/data/training_set.h"

namespace flux2 {

bool are_scenes(const std::vector<DatasetConfig>& datasets);

// Drawn images themselves, for training an autoencoder: LoadedBatch::pixels. Every visit shows a scene of its own; nothing is
// kept.
struct SceneImageOptions {
  int64_t crop = 0;   // side of a random square of each image; 0: the whole image
  uint64_t seed = 0;  // of the squares
  int threads = 0;    // that draw; 0: all processors
};
TrainingSet scene_image_set(std::vector<DatasetConfig> datasets, const CacheModel& model, const SceneImageOptions& options);

// Drawn images as latents and captions as tokens, for training the transformer. All scenes are drawn and encoded at the start and
// kept in memory; when `redraw` epochs are over, others take their place, which are made meanwhile on a thread of their own.
// What a batch holds depends on the configuration and the sample index only.
struct SceneLatentOptions {
  // Latents [B, 128, rows, columns] of images of the same size. Never called twice at a time, but from several threads.
  std::function<std::vector<float>(const std::vector<Image>& images)> encode;
  // The vector of an image encoder for a target; empty: none is needed. Called as `encode`.
  std::function<std::vector<float>(const Image& image)> feature = {};
  CaptionTable::Tokenise tokenise;                                 // may be called from several threads at a time
  std::function<void(int64_t done, int64_t total)> progress = {};  // of the scenes that are needed first
  int64_t pixels_together = 64 * 128 * 128;                        // of the images of one call of `encode`
  int threads = 0;
  Log log = {};
};
TrainingSet scene_latent_set(std::vector<DatasetConfig> datasets, const CacheModel& model, SceneLatentOptions options);

// Captions of the first scenes of all datasets, for making a tokenizer: `count` of them, each dataset in turn.
std::vector<std::string> scene_captions(const std::vector<DatasetConfig>& datasets, int64_t count);

}  // namespace flux2
