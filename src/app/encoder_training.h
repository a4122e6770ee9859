#pragma once

#include <memory>
#include <string>

#include "app/training_data.h"
#include "model/text_encoder.h"
#include "text/bpe_tokenizer.h"
#include "train/data/caption_tokens.h"
#include "train/train_options.h"

namespace flux2 {

// What is needed besides the text encoder itself when it runs in every step: because it is trained together with the transformer,
// or because the captions are those of drawn scenes, which have no caches.
struct EncoderTraining {
  std::shared_ptr<const BpeTokenizer> tokenizer;
  CaptionTable::Tokenise tokenise;               // may be called from several threads
  std::shared_ptr<const CaptionTable> captions;  // of a dataset of files; null for scenes
  int text_length = 0;
};

// Tokenises all captions of a dataset of files. Throws Incompatible if the tokenizer does not belong to the encoder, and
// OutOfMemory if both networks with their gradients do not fit into the memory of the device.
EncoderTraining prepare_encoder_training(const TrainingDataset& dataset, const Flux2Config& transformer,
                                         const TrainOptions& options, const Engine& engine, const Log& log);

// The text states [T, C] of a prompt, in F32 on the host.
Tensor states_of(const EncoderTraining& training, const TextEncoder& encoder, const std::string& prompt, Stream& stream,
                 DType activations);

}  // namespace flux2
