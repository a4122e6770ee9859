#include "cli/options.h"

namespace flux2 {

namespace {

OptionGroup model_group() {
  return {"Model",
          {{"model", 'm', "NAME|PATH", "registered name or key, variant id, file or folder (default: configured, installed or bundled one)",
            "generate"},
           {"dir", 'd', "FOLDER", "the same, for a diffusers-style folder"},
           {"dit", 0, "PATH|NAME", "transformer weights", "generate"},
           {"vae", 0, "PATH|NAME", "autoencoder weights: a file, a folder or a registered name", "generate"},
           {"text-encoder", 0, "PATH|NAME", "text encoder: a file, the first shard, a folder or a registered name", "generate"},
           {"tokenizer", 0, "PATH|NAME", "tokenizer folder, tokenizer.json or a registered name", "generate"},
           {"base", 0, "", "treat the model as undistilled: more steps, true guidance"}}};
}

OptionGroup device_group() {
  return {
      "Device and memory",
      {{"device", 0, "NAME", "auto, cpu, cuda or cuda:N (default: auto)", "memory"},
       {"threads", 't', "N", "CPU threads (default: physical cores)", "memory"},
       {"profile", 0, "NAME", "fast, or exact: f32 and independent of batch and threads (default: fast)", "generate"},
       {"vae-tile", 0, "auto|off|PX", "decode in tiles of PX pixels; auto: when memory is short (default: auto)", "memory"},
       {"quant", 0, "TYPE", "int8, q8_0, q4_0, fp8 or none: quantise while loading, for speed and memory (default: none)",
        "memory"},
       {"offload", 0, "WAY", "auto, none, encoder (leaves after use) or stream (blocks come as needed) (default: auto)", "memory"},
       {"max-vram", 0, "GIB", "GPU memory to stay within (default: what is free)", "memory"},
       {"max-ram", 0, "GIB", "with --device cpu: memory to stay within (default: no limit)", "memory"},
       {"blocks-resident", 0, "N", "blocks kept on the device", "memory", false, true, {"auto"}},
       {"place", 0, "dit=…,te=…,vae=…", "device per part", "memory", false, true, {"auto"}},
       {"no-mmap", 0, "", "read weights into memory", "memory", false, true},
       {"cache", 0, "WAY", "step caches", "memory", false, true, {"off"}},
       {"ref-kv", 0, "auto|on|off", "look at references once and reuse what was seen; auto: for models trained so (default: auto)",
        "memory"}}};
}

OptionGroup control_group() {
  return {"Messages",
          {{"quiet", 'q', "", "errors only", "ui"},
           {"verbose", 'v', "", "say more; twice: everything", {}, true},
           {"progress", 0, "HOW", "auto, bar, plain, json or off (default: auto)", "ui"},
           {"color", 0, "WHEN", "auto, always or never (default: auto; NO_COLOR is honoured)", "ui"},
           {"json", 0, "", "the result as one JSON object on stdout"},
           {"log-file", 0, "FILE", "append messages to this file too", "ui"},
           {"offline", 0, "", "no network at all", "ui"},
           {"strict", 0, "", "an error instead of rounding or cutting what was asked for", "generate"},
           {"yes", 'y', "", "answer questions with yes"},
           {"help", 'h', "", "this text"}}};
}

}  // namespace

std::vector<OptionGroup> generate_options() {
  const OptionGroup picture = {
      "Picture",
      {{"prompt", 'p', "TEXT", "what to draw, also as the argument; - reads standard input"},
       {"prompt-file", 0, "FILE", "one prompt per line, with options of its own at the end of a line"},
       {"wildcards", 0, "FOLDER|off", "files for __name__ in prompts (default: wildcards/ here, then in the data folder); "
        "off: take __name__ and {a|b} as they stand", "generate"},
       {"negative", 'n', "TEXT", "what to avoid; needs guidance (base models) or --cfg", "generate"},
       {"style", 0, "NAME", "prompt template; --style list shows them", "generate"},
       {"preset", 0, "NAME", "draft, standard or best: steps and size for the model at hand", "generate"},
       {"width", 'W', "PX", "64 to 4096, a multiple of 16 (default: the model's)", "generate"},
       {"height", 'H', "PX", "like --width", "generate"},
       {"size", 0, "WxH|PX|NAME", "both at once: 1360x768, 1024, square, landscape, portrait, 3:2, 2:3, 16:9, 9:16, 21:9", "generate"},
       {"seed", 'S', "N", "0 to 2^63-1, -1 or random (default: random)", "generate"},
       {"batch", 'b', "N", "pictures, with seeds counting up from --seed (default: 1)", "generate"},
       {"repeat", 0, "N", "repeat everything with fresh seeds (default: 1)", "generate"},
       {"from", 0, "FILE", "take the settings of this picture"},
       {"remix", 0, "FILE", "the same with a new seed"},
       {"lora", 0, "FILE|NAME[:W[:LAYERS]]", "adapter (LoRA, DoRA, LoHa, LoKr, OFT), its strength (default: 1) and, as a pattern like "
        "double_blocks or !mlp, which layers it may change; also <lora:NAME:W> in the prompt", {}, true},
       {"lora-mode", 0, "MODE", "auto and runtime: pairs of matrices beside the weights; merge: into them (default: auto)", "generate"},
       {"save-merged", 0, "FILE", "also write the transformer with the adapters merged in (.safetensors)"},
       {"upsample", 0, "WAY", "prompt rewriting", {}, false, true, {"none"}},
       {"element", 0, "NAME", "studio element", {}, true, true}}};
  const OptionGroup references = {
      "References",
      {{.name = "input",
        .letter = 'i',
        .value = "FILE",
        .help = "picture to edit or take from, up to 16; the first is \"image 1\" in a prompt; also -r, --ref",
        .repeatable = true,
        .also = "--ref,-r"},
       {"strength", 0, "X", "begin with the first picture, noised: near 0 it is kept, at 1 forgotten (default: 1)", "generate"},
       {"context", 0, "refs|none", "whether the picture to begin with is a reference too (default: refs)", "generate"},
       {"no-negative-refs", 0, "", "true guidance: only the pass with the prompt sees the references", "generate"},
       {"match", 0, "N|off", "make the picture as large as reference N (default: 1 unless a size is given)", "generate"},
       {"ref-pixels", 0, "N|WxH", "scale larger references down to this area (default: 2024x2024 for one, 1024x1024 for several)",
        "generate"},
       {"no-resize-ref", 0, "", "take references as large as they are", "generate"},
       {"ref-prep", 0, "NAME", "ours (EXIF turned, alpha over white), bfl or diffusers: how references are prepared (default: ours)",
        "generate"}}};
  const OptionGroup sampling = {
      "Sampling",
      {{"steps", 's', "N", "1 to 256 (default: the model's)", "generate"},
       {"guidance", 'g', "X", "base models: true guidance; dev: guidance input; locked on distilled models",
        "generate"},
       {"cfg", 0, "X", "true guidance with the negative prompt on any model; doubles the time", "generate"},
       {"cfg-scale", 0, "X", ""},
       {"schedule", 0, "NAME", "model, linear, power[:a] or sigmas:a,b,… (default: model)", "generate"},
       {"shift", 0, "X", "replaces the shift that depends on size and steps", "generate"},
       {"noise", 0, "NAME", "torch-cpu, torch-cuda[:SMSxTHREADS] or grid (default: torch-cpu)", "generate"},
       {"time-rounding", 0, "NAME", "exact, bfl or diffusers: how the time input is rounded (default: exact)",
        "generate"},
       {"sampler", 0, "NAME", "euler, heun (two passes a step) or dpmpp2m (default: euler)", "generate"},
       {"deadline", 0, "S", "finish in time", {}, false, true}}};
  const OptionGroup output = {
      "Output",
      {{"output", 'o', "PATH", "file, folder/ or pattern like {date}/{seq:05}-{seed}.{ext}; - is standard output",
        "generate"},
       {"format", 0, "NAME", "png, jpg, webp or ppm (default: from the name, else png)", "generate"},
       {"quality", 0, "N", "1 to 100 for jpg and webp (default: 95)", "generate"},
       {"rounding", 0, "NAME", "nearest or trunc: how samples become 8 bits (default: nearest)", "generate"},
       {"metadata", 0, "LIST", "of a1111, json, comfy, or none (default: a1111,json)", "generate"},
       {"private", 0, "", "leave prompt and names out of the file", "generate"},
       {"no-provenance", 0, "", "with --metadata none: leave out the mark of a generated picture too", "generate"},
       {"sidecar", 0, "", "also write the settings to PICTURE.json", "generate"},
       {"show", 0, "HOW", "auto, kitty, iterm2, sixel, blocks or off: draw it in the terminal (default: off)", "ui"},
       {"zoom", 0, "X", "scale for --show (default: 1)", "ui"},
       {"show-steps", 0, "", "show what it is about to become after each step", "ui"},
       {"preview-file", 0, "FILE", "write that to a file, again after each step"},
       {"preview", 0, "HOW", "off, linear (fast, an estimate) or full (decoded): how steps are shown (default: linear)", "ui"}}};
  const OptionGroup exchange = {
      "Tensors in and out (safetensors)",
      {{"embeddings", 0, "FILE", "text.embeddings, negative.embeddings: used instead of the text encoder"},
       {"noise-file", 0, "FILE", "noise [128, h, w]: used instead of the seed"},
       {"latents-out", 0, "FILE", "write the final latents [128, h, w]"},
       {"trace", 0, "FILE", "record every tensor of the run for comparison"},
       {"dry-run", 0, "", "print the resolved request as JSON and stop"}}};
  return {picture, references, model_group(), sampling, output, exchange, device_group(), control_group()};
}

std::vector<OptionGroup> inpaint_options() {
  std::vector<OptionGroup> groups = generate_options();
  const OptionGroup mask = {
      "Inpainting",
      {{"mask", 0, "FILE", "white: make anew, black: keep, grey: blend; with transparency that decides"},
       {.name = "mask-box", .value = "X,Y,W,H", .help = "a rectangle to make anew; may be repeated", .repeatable = true},
       {"mask-invert", 0, "", "turn the mask around"},
       {"grow", 0, "PX", "widen the mask, 0 to 256 (default: 8)", "generate"},
       {"feather", 0, "PX", "soften its edge, 0 to 256 (default: 8)", "generate"},
       {"crop", 0, "auto|off|PX", "work on the mask's surroundings of PX pixels; auto: 32, when the mask is small (default: auto)",
        "generate"},
       {"extend", 0, "L,T,R,B", "make the picture larger by so many pixels and fill them"},
       {"inpaint-mode", 0, "NAME", "ours, or diffusers: as its klein inpaint pipeline does it (default: ours)", "generate"},
       {"align", 0, "on|off", "measure what was made against what is kept; correct shift, scale and colour (default: on)",
        "generate"},
       {"mask-points", 0, "LIST", "mask by points", {}, false, true},
       {"mask-text", 0, "TEXT", "mask by text", {}, false, true}}};
  groups.insert(groups.begin() + 1, mask);
  return groups;
}

std::vector<OptionGroup> inspect_options() {
  return {{"Output", {{"raw", 0, "", "the stored texts as they are"}}}, control_group()};
}

std::vector<OptionGroup> tokenize_options() {
  return {{"Tokens",
           {{"template", 0, "", "put the text into the chat template first"},
            {"length", 0, "N", "cut or pad to N tokens; implies --template"},
            {"jsonl", 0, "", "read one JSON string per line from standard input"}}},
          model_group(),
          control_group()};
}

std::vector<OptionGroup> vae_options() {
  return {{"Output",
           {{"output", 'o', "FILE", "latents (encode) or picture (decode)"},
            {"quality", 0, "N", "1 to 100 for jpg and webp (default: 95)"},
            {"rounding", 0, "NAME", "nearest or trunc (default: nearest)"}}},
          model_group(),
          device_group(),
          control_group()};
}

std::vector<OptionGroup> bench_options() {
  return {{"model, quant: every network, or one step in every quantisation, at real size with random weights",
           {{"variant", 0, "NAME", "klein-4b, klein-9b, dev or tiny (default: klein-4b)"},
            {"size", 0, "PX|WxH", "of the picture, multiples of 16 (default: 1024; quant: 256)"},
            {"batch", 'b', "N", "pictures in one step (default: 1)"},
            {"refs", 0, "N", "reference pictures of the same size in a step (default: 0)"},
            {"repeat", 0, "N", "passes; the median counts (default: 10, on a CPU 3)"},
            {"only", 0, "LIST", "of text, step, decode, encode, picture; gemm: of f32, bf16, int8, … (default: all)"},
            {"per-op", 0, "", "on a GPU: which ops the time goes to"}}},
          {"train: forward, loss and the gradients of adapters on every linear layer of the blocks",
           {{"rank", 0, "N", "of the adapters (default: 32)"},
            {"checkpoint", 0, "", "compute each block again for its gradient instead of keeping what it computed"}}},
          {"gemm: the CPU's matrix products on klein-4B's shapes",
           {{"rows", 0, "N", "rows of the activations (default: 768 and 1536)"},
            {"seconds", 0, "S", "spent on each product (default: 0.5)"}}},
          {"Device",
           {{"device", 0, "NAME", "auto, cpu, cuda or cuda:N (default: auto)", "memory"},
            {"threads", 't', "N", "CPU threads (default: physical cores)", "memory"},
            {"quant", 0, "TYPE", "int8, q8_0, q4_0, fp8 or none: of the weights (default: none)"},
            {"max-ram", 0, "GIB", "with --device cpu: memory to stay within"},
            {"max-vram", 0, "GIB", "GPU memory to stay within"},
            {"offload", 0, "WAY", "auto, none, encoder or stream"},
            {"profile", 0, "NAME", "fast or exact (default: fast)"}}},
          control_group()};
}

std::vector<OptionGroup> convert_options() {
  return {{"Conversion",
           {{"out", 'o', "FILE|FOLDER", "the file to write, .gguf or .safetensors; a folder gets config.json, too, as diffusers reads it"},
            {"to", 0, "LAYOUT", "bfl, diffusers, comfy or gguf (default: by the name of the file; diffusers in a folder)"},
            {"quant", 0, "TYPE", "of the matrices inside blocks: keep, f32, f16, bf16; safetensors: fp8, fp8_block, int8, nvfp4; GGUF: "
             "q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, iq4_nl, iq4_xs, q3_k, q2_k (default: keep)"},
            {"quant-rule", 0, "REGEX=TYPE", "for tensors whose original name matches; the first rule that does decides", {}, true},
            {"fp8-text-encoder", 0, "", "the text encoder as Qwen publishes it in FP8: --part text-encoder --quant fp8_block"},
            {"shard-size", 0, "GB", "a folder's weights become several files above this; 0: never (default: 10)"},
            {"part", 0, "NAME", "transformer, text-encoder or vae, of an input that holds several"},
            {"report", 0, "", "list the error of every tensor, not of the three worst alone"},
            {"threads", 't', "N", "CPU threads (default: physical cores)", "memory"}}},
          {"Calibration",
           {{"calibrate", 0, "FILE", "prompts, a line each with options like --w --h --s --d: make their pictures with the source and with the "
             "result and tell how far they are apart"},
            {"model", 'm', "ID|PATH", "calibrate: where the other parts are, if not beside the source", "generate"},
            {"dit", 0, "FILE", "calibrate: the transformer, when another part is converted", "generate"},
            {"vae", 0, "FILE", "calibrate: the autoencoder", "generate"},
            {"text-encoder", 0, "PATH", "calibrate: the text encoder", "generate"},
            {"tokenizer", 0, "PATH", "calibrate: the tokenizer", "generate"},
            {"device", 0, "NAME", "calibrate: auto, cpu, cuda or cuda:N (default: auto)", "memory"},
            {"profile", 0, "NAME", "calibrate: fast or exact (default: fast)", "generate"}}},
          control_group()};
}

std::vector<OptionGroup> lora_options() {
  return {{"Adapters",
           {{"out", 'o', "FILE", "convert, merge, extract, ema: the file to write"},
            {"to", 0, "DIALECT", "convert, extract: kohya, peft, bfl or comfy (default: kohya)"},
            {"into", 0, "MODEL", "merge: the transformer's file, a model's folder or a registered name"},
            {"rank", 0, "N", "extract: 1 to 4096 (default: 32)"},
            {"sigma-rel", 0, "X", "ema: how far back the average over files of one run reaches, as a part of it, 0.01 to 0.28 (default: 0.15)"},
            {"model", 'm', "ID|PATH", "check, convert: the model it is for, where its width does not tell"}}},
          control_group()};
}

std::vector<OptionGroup> doctor_options() { return {model_group(), control_group()}; }

std::vector<OptionGroup> config_options() {
  return {{"config", {{"origin", 0, "", "list: also show where each value comes from"}}}, control_group()};
}

std::vector<OptionGroup> version_options() { return {control_group()}; }

}  // namespace flux2
