#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "model/flux2_transformer.h"
#include "model/image_prompt.h"
#include "model/text_encoder.h"
#include "model/vae.h"
#include "pipeline/captured.h"
#include "pipeline/resident.h"
#include "pipeline/rope_cache.h"
#include "pipeline/tensor_cache.h"
#include "pipeline/trace.h"
#include "text/bpe_tokenizer.h"

namespace flux2 {

// The three networks and the tokenizer, immutable. The two large networks can be loaded and unloaded.
struct Models {
  Resident<Flux2Transformer> transformer;
  Resident<TextEncoder> text_encoder;  // may be empty when text states are always given
  std::shared_ptr<const BpeTokenizer> tokenizer;
  std::shared_ptr<const Vae> vae;
  int text_length = 512;  // slots; a property of the model
};

struct ReferenceMemory;  // pipeline/references.h
struct PromptPrefix;     // pipeline/text_states.h

// The mutable state of one worker: its stream and its caches between runs. Only one thread may use it at a time.
struct Session {
  Models models;  // the networks of this session: with its adapters, on its stream
  std::shared_ptr<Stream> stream;
  DType activations = DType::F32;  // BF16 on a GPU in profile fast
  Log log;

  // The largest number of tokens in one pass of the transformer; larger batches run in groups.
  int64_t tokens_at_once = 8192;

  // Text states [1, T, Cctx] by prompt.
  TensorCache prompt_cache{int64_t{512} << 20};
  // Prompts of later requests, in order. If the text encoder is unloaded after use, the next prompts are encoded while it is in
  // memory.
  std::vector<std::string> prompts_ahead;

  // What all prompts begin with, if the model's prompts have such a beginning.
  std::shared_ptr<const PromptPrefix> prompt_prefix;

  RopeCache ropes;

  // Latents [1, I, 128] in F32 of images, by the hash of their samples.
  TensorCache picture_cache{int64_t{512} << 20};

  // The keys and values of the references that were used last, for models that reuse them. Code that changes a model's weights or
  // adapters must clear this.
  std::shared_ptr<const ReferenceMemory> reference_memory;
  int64_t reference_hits = 0, reference_misses = 0;

  // The adapter that image prompts of requests need; null: they are refused.
  std::shared_ptr<const ImagePromptNetwork> image_prompt;

  // Work recorded by captured(), oldest first; each keeps the memory of its run. Code that changes a model's weights or adapters
  // must clear this.
  std::list<CapturedWork> captured_work;
  size_t captured_limit = 6;
  bool capture = true;  // false if memory is short, because recorded work keeps all its memory

  // Latent positions (16 pixels) a side that are decoded at once; 0: the whole image.
  int64_t decode_tile = 0;

  // A decoder in f32 for images that come out broken; tokens [1, I, 128] F32 → [1, H, W, 3]. May be empty.
  std::function<Tensor(const Tensor& tokens, int64_t rows, int64_t columns)> decode_in_f32;
  bool always_decode_in_f32 = false;  // for every image, not for broken ones alone
  // Called with this session when the text encoder is about to be used. May be empty.
  std::function<void(Session&)> text_begins;
  // Called with this session once the text states are there: the encoder's memory is not needed any more. May be empty.
  std::function<void(Session&)> text_done;

  // Looks for weights that are not numbers: "FILE: tensor NAME contains …", or an empty text. May be empty.
  std::function<std::string()> find_damage;

  bool log_prompts = false;  // whether messages may quote prompts

  Trace* trace = nullptr;
};

}  // namespace flux2
