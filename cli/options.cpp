#include "cli/options.h"

#include <algorithm>

#include "base/error.h"
#include "cli/program_fields.h"

namespace flux2 {

namespace {

// "like <width>" → "like --width"
std::string in_own_words(std::string help) {
  for (size_t open = help.find('<'); open != help.npos; open = help.find('<', open + 1)) {
    const size_t close = help.find('>', open);
    if (close == help.npos) break;
    const Field* f = find_field(help.substr(open + 1, close - open - 1));
    if (f) help.replace(open, close - open + 1, "--" + option_name(*f));
  }
  return help;
}

// An option that short help leaves out.
OptionSpec rare(OptionSpec o) {
  o.common = false;
  return o;
}

OptionSpec with_words(OptionSpec o, std::vector<std::string> words) {
  o.words = std::move(words);
  return o;
}

OptionGroup model_group() {
  OptionGroup group{"Model", {option("model", 'm')}};
  group.options.push_back(rare({"dir", 'd', "FOLDER", "the same as --model, for a diffusers folder"}));
  for (const char* name : {"dit", "vae", "text_encoder", "tokenizer", "base"}) group.options.push_back(option(name));
  return group;
}

OptionGroup device_group() {
  return {"Device and memory",
          {option("device"), option("threads", 't'), option("profile"), option("vae_tile"), option("vae_dtype"), option("quant"),
           option("quant_text_encoder"), option("attention"), option("quant_cache"), option("offload"), option("blocks_to_swap"),
           option("max_vram"), option("max_ram"), option("text_cache"), option("blocks_resident"), option("place"),
           option("no_mmap"), option("cache"), option("ref_kv")}};
}

OptionGroup rewriting_group() {
  OptionGroup group{"Prompt rewriting", {}};
  for (const char* name :
       {"upsample", "upsample_model", "upsample_url", "upsample_key_env", "upsample_params", "upsample_max_tokens",
        "upsample_timeout", "upsample_no_images", "upsample_full_size", "upsample_system_t2i", "upsample_system_edit"})
    group.options.push_back(option(name));
  return group;
}

OptionGroup control_group() {
  return {"Messages",
          {option("quiet", 'q'),
           {"verbose", 'v', "", "show more messages; twice: everything", true},
           option("progress"),
           option("color"),
           {"json", 0, "", "print the result as one JSON object on stdout"},
           option("log_file"),
           option("log_prompts"),
           option("offline"),
           option("strict"),
           rare({"yes", 'y', "", "answer questions with yes"}),
           {"help", 'h', "", "show the common options"},
           {"help-all", 0, "", "show all options"}}};
}

}  // namespace

std::vector<const Field*> fields_of(const std::vector<OptionGroup>& groups) {
  std::vector<const Field*> fields;
  for (const OptionGroup& group : groups)
    for (const OptionSpec& o : group.options)
      if (o.field) fields.push_back(o.field);
  return fields;
}

OptionSpec option(std::string_view name, char letter) {
  const auto& own = program_fields();
  const auto program = std::find_if(own.begin(), own.end(), [&](const Field& f) { return f.name == name; });
  const Field& f = program != own.end() ? *program : field(name);
  return {.name = option_name(f),
          .letter = letter,
          .value = f.type == FieldType::Flag ? "" : f.unit,
          .help = in_own_words(f.help),
          .repeatable = f.type == FieldType::Texts,
          .field = &f,
          .common = f.common,
          .words = f.choices.empty() ? f.suggestions : f.choices};
}

OptionSpec option(std::string_view name, char letter, std::string help) {
  OptionSpec made = option(name, letter);
  made.help = std::move(help);
  made.common = true;  // a command that explains an option in its own words needs it
  return made;
}

void set_common(std::vector<OptionGroup>& groups, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const bool exists = std::any_of(groups.begin(), groups.end(), [&](const OptionGroup& group) {
      return std::any_of(group.options.begin(), group.options.end(), [&](const OptionSpec& o) { return o.name == name; });
    });
    require(exists, "there is no option {} to list", name);
  }
  for (OptionGroup& group : groups)
    for (OptionSpec& o : group.options) o.common = std::find(names.begin(), names.end(), o.name) != names.end();
}

std::vector<OptionGroup> generate_options() {
  const OptionGroup picture = {
      "Image",
      {option("prompt", 'p'),
       rare({"prompt-file", 0, "FILE", "one prompt per line, with options of its own at the end of a line"}),
       option("wildcards"),
       option("negative", 'n'),
       option("style"),
       option("preset"),
       option("width", 'W'),
       option("height", 'H'),
       option("size"),
       option("seed", 'S'),
       option("batch", 'b'),
       option("repeat"),
       option("variation"),
       option("tile"),
       option("hires"),
       option("hires_strength"),
       option("hires_method"),
       option("detail_mask"),
       option("detail_box"),
       option("detail_strength"),
       option("region"),
       option("region_mask"),
       option("region_reference"),
       option("from"),
       option("remix"),
       option("lora"),
       option("lora_mode"),
       rare({"save-merged", 0, "FILE", "also write the transformer with the adapters merged in (.safetensors)"}),
       rare({"save-merged-model", 0, "FILE",
             "write the transformer with the adapters merged in and make no image; needs no prompt"}),
       option("element")}};
  OptionGroup rewriting = rewriting_group();
  rewriting.options.push_back(option("upsample_each"));
  rewriting.options.push_back(option("rewritten_prompt"));
  OptionSpec input = option("input", 'i');
  input.help += "; also -r, --ref";
  input.also = "--ref,-r";
  const OptionGroup references = {"References",
                                  {input, option("strength"), option("context"), option("no_negative_refs"), option("match"),
                                   option("ref_pixels"), option("no_resize_ref"), option("ref_prep"), option("image_prompt"),
                                   option("image_prompt_adapter"), option("image_prompt_encoder")}};
  const OptionGroup sampling = {
      "Sampling",
      {option("steps", 's'), option("guidance", 'g'), option("cfg"), option("cfg_scale"), option("schedule"), option("shift"),
       option("noise"), option("time_rounding"), option("sampler"), option("deadline")}};
  const OptionGroup output = {
      "Output",
      {option("output", 'o'), option("format"), option("quality"), option("rounding"), option("metadata"), option("private"),
       option("no_provenance"), option("sidecar"), option("watermark"), option("moderation"), option("show"), option("zoom"),
       option("show_steps"), option("preview_file"), option("preview")}};
  OptionSpec output_type = option("output_type");
  output_type.help += "; --until latents is the same as latent";
  OptionSpec text_states = option("embeddings");
  text_states.help += "; also --text-states";
  text_states.also = "--text-states,--text_states";
  const OptionGroup exchange = {"Tensors in and out (safetensors)",
                                {text_states, option("noise_file"), option("latents_out"), output_type, option("latent_path"),
                                 option("trace"), rare({"dry-run", 0, "", "print the resolved request as JSON and stop"})}};
  return {picture, rewriting, references, model_group(), sampling, output, exchange, device_group(), control_group()};
}

namespace {

// Which part of an image is meant.
std::vector<OptionSpec> selection_options() {
  return {option("mask"),        option("mask_box"),        option("mask_ellipse"),   option("mask_polygon"),
          option("mask_wand"),   option("mask_color"),      option("mask_from_diff"), option("mask_text"),
          option("mask_points"), option("mask_confidence"), option("mask_service"),   option("mask_invert"),
          option("grow"),        option("feather"),         option("extend")};
}

}  // namespace

std::vector<OptionGroup> inpaint_options() {
  std::vector<OptionGroup> groups = generate_options();
  OptionGroup mask = {"Inpainting", selection_options()};
  for (const char* name : {"crop", "inpaint_mode", "align", "watermark_kept"}) mask.options.push_back(option(name));
  groups.insert(groups.begin() + 1, mask);
  set_common(groups, {"prompt", "input", "mask",     "mask-box", "mask-wand", "extend", "strength", "size", "seed", "batch",
                      "model",  "steps", "guidance", "output",   "device",    "quant",  "verbose",  "json", "help", "help-all"});
  return groups;
}

std::vector<OptionGroup> mask_options() {
  OptionGroup selection = {"Selection", selection_options()};
  for (OptionSpec& o : selection.options) {
    if (o.name == "mask") o.help = "a mask to start from: white is selected, or what is transparent if it has an alpha channel";
    if (o.name == "mask-box") o.help = "a rectangle; may be repeated";
    if (o.name == "mask-invert") o.help = "swap what is selected and what is not";
    if (o.name == "grow") o.help = "widen the mask, 0 to 256 (default: 0)";
    if (o.name == "feather") o.help = "soften the edge of the mask, 0 to 256 (default: 0)";
  }
  std::vector<OptionGroup> groups = {selection,
                                     {"Output",
                                      {option("input", 'i', "the image; - reads standard input"),
                                       option("output", 'o', "the mask: white is selected"),
                                       {"overlay", 0, "FILE", "the image with the mask over it in red"},
                                       option("show"),
                                       option("zoom")}},
                                     control_group()};
  set_common(groups,
             {"mask-box", "mask-wand", "mask-ellipse", "mask-polygon", "mask-color", "mask-from-diff", "mask-text", "mask-invert",
              "grow", "feather", "input", "output", "overlay", "show", "verbose", "json", "help", "help-all"});
  return groups;
}

std::vector<OptionGroup> inspect_options() {
  OptionSpec watermark = option("watermark");
  watermark.help = "also look for this invisible mark: flux, or the hexadecimal digits that were written";
  return {{"Output", {{"raw", 0, "", "print the stored texts unchanged"}, watermark}}, control_group()};
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
  return {{"Output", {option("output", 'o', "latents (encode) or image (decode)"), option("quality"), option("rounding")}},
          model_group(),
          device_group(),
          control_group()};
}

std::vector<OptionGroup> bench_options() {
  return {{"model, quant: every network, or one step in every quantisation, at real size with random weights",
           {with_words({"variant", 0, "NAME", "klein-4b, klein-9b, dev, tiny or dev-tiny (default: klein-4b)"},
                       {"klein-4b", "klein-9b", "dev", "tiny", "dev-tiny"}),
            {"size", 0, "PX|WxH", "size of the image, multiples of 16 (default: 1024; quant, upscale: 256)"},
            {"batch", 'b', "N", "images in one step (default: 1)"},
            {"refs", 0, "N", "reference images of the same size in a step (default: 0)"},
            {"repeat", 0, "N", "number of passes; the result is their median (default: 10, on a CPU 3)"},
            {"only", 0, "LIST", "what to measure: text, step, decode, encode, picture; gemm: f32, bf16, int8, … (default: all)"},
            {"per-op", 0, "", "on a GPU: how much time each op takes"}}},
          {"train: forward, loss and the gradients of adapters on every linear layer of the blocks",
           {{"rank", 0, "N", "rank of the adapters (default: 32)"},
            {"checkpoint", 0, "", "compute each block a second time for its gradient instead of keeping its tensors"}}},
          {"upscale: an upscaler (RRDBNet) of real size with random weights", {{"scale", 0, "N", "1, 2 or 4 (default: 4)"}}},
          {"language: the language model that belongs to a variant, with random weights",
           {rare({"prompt-tokens", 0, "N", "tokens of the prompt (default: 64)"}),
            {"tokens", 0, "N", "tokens to write (default: 32)"}}},
          {"gemm: the CPU's matrix products on klein-4B's shapes",
           {{"rows", 0, "N", "rows of the activations (default: 768 and 1536)"},
            {"seconds", 0, "S", "time to measure each product for (default: 0.5)"}}},
          {"Device",
           {option("device"), option("threads", 't'), option("quant"), option("attention"), option("max_ram"), option("max_vram"),
            option("offload"), option("profile")}},
          control_group()};
}

std::vector<OptionGroup> convert_options() {
  return {
      {"Conversion",
       {{"out", 'o', "FILE|FOLDER",
         "the file to write, .gguf or .safetensors; a folder also gets the config.json that diffusers reads"},
        with_words(
            {"to", 0, "LAYOUT", "bfl, diffusers, comfy or gguf (default: from the name of the file; diffusers for a folder)"},
            {"bfl", "diffusers", "comfy", "gguf"}),
        with_words({"quant", 0, "TYPE",
                    "type of the matrices inside blocks: keep, f32, f16, bf16; safetensors: fp8, fp8_block, int8, nvfp4; GGUF: "
                    "q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, iq4_nl, iq4_xs, q3_k, q2_k (default: keep)"},
                   {"keep", "f32",  "f16",  "bf16", "fp8",  "fp8_block", "int8",   "nvfp4",  "q8_0", "q6_k",
                    "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0",      "iq4_nl", "iq4_xs", "q3_k", "q2_k"}),
        {"quant-rule", 0, "REGEX=TYPE", "type of the tensors whose original name matches; the first rule that matches is used",
         true},
        {"fp8-text-encoder", 0, "", "the format of Qwen's own FP8 files; the same as --part text-encoder --quant fp8_block"},
        {"shard-size", 0, "GB", "in a folder: split weights into files of at most this size; 0: never (default: 10)"},
        with_words({"part", 0, "NAME", "which part to convert if the input contains several: transformer, text-encoder or vae"},
                   {"transformer", "text-encoder", "vae"}),
        {"upscaler", 0, "", "make a safetensors file of an upscaler's .pth file; no other pickle is read"},
        {"report", 0, "", "list the error of every tensor instead of the three worst"},
        option("threads", 't')}},
      {"Calibration",
       {{"calibrate", 0, "FILE",
         "a file with one prompt per line, with options like --w --h --s --d: generate images with the source and with "
         "the result, and print how much they differ"},
        rare(option("model", 'm', "calibrate: the model with the other parts, if they are not next to the source")),
        rare(option("dit", 0, "calibrate: the transformer, when another part is converted")),
        rare(option("vae", 0, "calibrate: the autoencoder")),
        rare(option("text_encoder", 0, "calibrate: the text encoder")),
        rare(option("tokenizer", 0, "calibrate: the tokenizer")),
        rare(option("device", 0, "calibrate: auto, cpu, cuda or cuda:N (default: auto)")),
        rare(option("profile", 0, "calibrate: fast or exact (default: fast)"))}},
      control_group()};
}

std::vector<OptionGroup> lora_options() {
  return {{"Adapters",
           {{"out", 'o', "FILE", "convert, merge, extract, ema: the file to write"},
            with_words({"to", 0, "DIALECT", "convert, extract: kohya, peft, bfl or comfy (default: kohya)"},
                       {"kohya", "peft", "bfl", "comfy"}),
            {"into", 0, "MODEL", "merge: the transformer's file, a model's folder or a registered name"},
            {"rank", 0, "N", "extract: 1 to 4096 (default: 32)"},
            {"sigma-rel", 0, "X", "ema: width of the average as a share of the training so far, 0.01 to 0.28 (default: 0.15)"},
            {"model", 'm', "ID|PATH", "check, convert: the model of the adapter, if its width does not show it"}}},
          control_group()};
}

std::vector<OptionGroup> doctor_options() { return {model_group(), control_group()}; }

std::vector<OptionGroup> config_options() {
  return {{"config", {{"origin", 0, "", "list: also show where each value comes from"}}}, control_group()};
}

std::vector<OptionGroup> version_options() { return {control_group()}; }

std::vector<OptionGroup> selftest_options() {
  return {
      {"Selftest", {option("device", 0, "test one device or instruction set: cpu, cpu:scalar, cpu:avx2, cuda:0 (default: all)")}},
      {"For developers", {{"write-reference", 0, "FILE", "write the results to compare with (models/pico/selftest.json)"}}},
      control_group()};
}

std::vector<OptionGroup> prompt_options() { return {control_group()}; }

std::vector<OptionGroup> rewrite_options() {
  std::vector<OptionGroup> groups = {
      {"Prompt",
       {option("prompt", 'p'), option("input", 'i', "edit: an image that the prompt is about, up to 16"),
        option("seed", 'S', "decides the answer too, where the service takes a seed")}},
      rewriting_group(),
      model_group(),
      device_group(),
      control_group()};
  set_common(groups, {"prompt", "input", "upsample", "upsample-model", "upsample-url", "json", "help", "help-all"});
  return groups;
}

std::vector<OptionGroup> encode_text_options() {
  return {{"Text states",
           {option("output", 'o', "the file to write (.safetensors)"),
            option("negative", 'n', "what to avoid: also written, for models with guidance or with --cfg")}},
          model_group(),
          device_group(),
          control_group()};
}

std::vector<OptionGroup> serve_options() {
  OptionGroup server{"Server", {}};
  for (const char* name : {"host",
                           "port",
                           "socket",
                           "api_key",
                           "insecure",
                           "host_name",
                           "cors",
                           "tls_cert",
                           "tls_key",
                           "queue",
                           "key_rate",
                           "key_queue",
                           "key_work",
                           "log_format",
                           "max_batch",
                           "batch_wait_ms",
                           "idle_unload",
                           "max_models",
                           "preload",
                           "model_roots",
                           "preempt_wait",
                           "trash_days",
                           "mask_service",
                           "sam_url",
                           "data",
                           "database",
                           "images",
                           "image_cache_mb",
                           "no_worker",
                           "no_ui",
                           "ui",
                           "cancel_on_disconnect",
                           "allow_url_fetch",
                           "alias_openai_models",
                           "img2img",
                           "distilled_step_cap"})
    server.options.push_back(option(name));
  return {server, model_group(), device_group(), control_group()};
}

std::vector<OptionGroup> worker_options() {
  OptionGroup worker{"Worker", {}};
  for (const char* name : {"data", "database", "images", "image_cache_mb", "max_batch", "batch_wait_ms", "idle_unload",
                           "max_models", "preload", "model_roots", "preempt_wait"})
    worker.options.push_back(option(name));
  return {worker, model_group(), device_group(), control_group()};
}

std::vector<OptionGroup> man_options() {
  return {{"Output", {{"out", 0, "FOLDER", "write the pages of all commands into this folder"}}}, control_group()};
}

}  // namespace flux2
