#include "cli/options.h"

#include <algorithm>

#include "app/safety_settings.h"
#include "base/error.h"

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
           option("quant_text_encoder"), option("quant_cache"), option("offload"), option("blocks_to_swap"), option("max_vram"),
           option("max_ram"), option("text_cache"), option("blocks_resident"), option("place"), option("no_mmap"),
           option("cache"), option("ref_kv")}};
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

const std::vector<Field>& program_fields() {
  using T = FieldType;
  static const std::vector<Field> fields = {
      {.name = "quiet", .type = T::Flag, .help = "print errors only", .section = "ui", .common = true},
      {.name = "progress",
       .type = T::Choice,
       .unit = "HOW",
       .help = "auto, bar, plain, json or off (default: auto)",
       .section = "ui",
       .choices = {"auto", "bar", "plain", "json", "off"}},
      {.name = "color",
       .type = T::Choice,
       .unit = "WHEN",
       .help = "auto, always or never (default: auto; NO_COLOR is respected)",
       .section = "ui",
       .choices = {"auto", "always", "never"}},
      {.name = "log_file", .unit = "FILE", .help = "also append messages to this file", .section = "ui"},
      {.name = "log_prompts",
       .type = T::Flag,
       .help = "messages and the log file may quote prompts (default: off)",
       .section = "ui"},
      {.name = "offline", .type = T::Flag, .help = "no network access at all", .section = "ui"},
      {.name = "show",
       .type = T::Choice,
       .unit = "HOW",
       .help = "draw the image in the terminal: auto, kitty, iterm2, sixel, blocks or off (default: off)",
       .section = "ui",
       .choices = {"auto", "kitty", "iterm2", "sixel", "blocks", "off"},
       .common = true},
      {.name = "zoom",
       .type = T::Number,
       .unit = "X",
       .help = "scale for --show (default: 1)",
       .section = "ui",
       .low = 0.05,
       .high = 16},
      {.name = "show_steps", .type = T::Flag, .help = "show a preview after each step", .section = "ui"},

      // The server.
      {.name = "host",
       .unit = "ADDRESS",
       .help = "address to listen on; another one than 127.0.0.1 needs a key (default: 127.0.0.1)",
       .section = "serve",
       .common = true},
      {.name = "port",
       .type = T::Integer,
       .unit = "N",
       .help = "port to listen on; 0 chooses a free one (default: 8190)",
       .section = "serve",
       .low = 0,
       .high = 65535,
       .common = true},
      {.name = "socket", .unit = "PATH", .help = "listen on a Unix socket instead of a port", .section = "serve"},
      {.name = "api_key",
       .type = T::Texts,
       .unit = "KEY|@FILE",
       .help =
           "key that clients must send; @FILE reads it from a file, one key per line; generate:KEY and manage:KEY may do less",
       .section = "serve",
       .common = true},
      {.name = "insecure", .type = T::Flag, .help = "allow a public address without a key", .section = "serve"},
      {.name = "host_name",
       .type = T::Texts,
       .unit = "NAME",
       .help = "name of this machine that clients may use besides localhost",
       .section = "serve"},
      {.name = "cors",
       .type = T::Texts,
       .unit = "ORIGIN",
       .help = "origin whose web pages may use the server",
       .section = "serve"},
      {.name = "tls_cert", .unit = "FILE", .help = "certificate (PEM), for https", .section = "serve"},
      {.name = "tls_key", .unit = "FILE", .help = "private key of the certificate (PEM)", .section = "serve"},
      {.name = "queue",
       .type = T::Integer,
       .unit = "N",
       .help = "jobs that may wait and run at a time; more are refused (default: 100)",
       .section = "serve",
       .low = 1,
       .high = 1e6,
       .common = true},
      {.name = "key_rate",
       .type = T::Integer,
       .unit = "N",
       .help = "requests a minute for each key without a limit of its own; 0: any number (default: 0)",
       .section = "serve",
       .low = 0,
       .high = 1e6},
      {.name = "key_queue",
       .type = T::Integer,
       .unit = "N",
       .help = "jobs of each key that may wait and run at a time; 0: any number (default: 0)",
       .section = "serve",
       .low = 0,
       .high = 1e6},
      {.name = "key_work",
       .type = T::Integer,
       .unit = "N",
       .help = "megapixels times steps an hour for each key; 0: any number (default: 0)",
       .section = "serve",
       .low = 0,
       .high = 1e12},
      {.name = "log_format",
       .type = T::Choice,
       .unit = "FORMAT",
       .help = "write a line for each request and each change of a job: text or json (default: neither)",
       .section = "serve",
       .choices = {"text", "json"}},
      {.name = "max_batch",
       .type = T::Integer,
       .unit = "N",
       .help = "images of several jobs that are computed together (default: 4, or up to 16 small ones)",
       .section = "serve",
       .low = 1,
       .high = 64},
      {.name = "batch_wait_ms",
       .type = T::Integer,
       .unit = "MS",
       .help = "how long a job waits for others to share its batch (default: 5)",
       .section = "serve",
       .low = 0,
       .high = 10000},
      {.name = "idle_unload",
       .type = T::Integer,
       .unit = "S",
       .help = "free the model's memory after S seconds without a job; 0: never (default: 0)",
       .section = "serve",
       .low = 0,
       .high = 1e7,
       .common = true},
      {.name = "max_models",
       .type = T::Integer,
       .unit = "N",
       .help = "models kept in memory at a time, if they fit; the one used longest ago leaves first (default: 4)",
       .section = "serve",
       .low = 1,
       .high = 100},
      {.name = "cancel_on_disconnect",
       .type = T::Choice,
       .unit = "on|off",
       .help = "cancel the job of a client that waits for its answer and leaves (default: on)",
       .section = "serve",
       .choices = {"on", "off"}},
      {.name = "allow_url_fetch",
       .type = T::Choice,
       .unit = "off|https|http",
       .help = "fetch images that requests name by their address, from public addresses alone (default: off)",
       .section = "serve",
       .choices = {"off", "https", "http"}},
      {.name = "alias_openai_models",
       .type = T::Choice,
       .unit = "on|off",
       .help = "names of OpenAI's own models mean the default model (default: on)",
       .section = "openai",
       .choices = {"on", "off"}},
      {.name = "img2img",
       .type = T::Choice,
       .unit = "edit|strength",
       .help = "what img2img of the A1111 interface without a mask does: use the image as a reference, or start from it "
               "(default: edit)",
       .section = "sdapi",
       .choices = {"edit", "strength"}},
      {.name = "distilled_step_cap",
       .type = T::Integer,
       .unit = "N",
       .help = "most steps of A1111 requests for distilled models, whose clients ask for 20 by habit (default: 8)",
       .section = "sdapi",
       .low = 1,
       .high = 256},
      {.name = "preload", .type = T::Flag, .help = "load the model before the first job", .section = "serve", .common = true},
      {.name = "no_ui", .type = T::Flag, .help = "serve no web page, only the HTTP interfaces", .section = "serve"},
      {.name = "ui",
       .type = T::Text,
       .unit = "FOLDER",
       .help = "read the files of the web page from this folder, for those who work on it",
       .section = "serve"},
      {.name = "model_roots",
       .type = T::Texts,
       .unit = "FOLDER",
       .help = "folder whose files requests may name, besides the model folders and the data folder",
       .section = "serve"},
      {.name = "preempt_wait",
       .type = T::Number,
       .unit = "S",
       .help = "after it paused for an image, training continues after S seconds without another such request (default: 30)",
       .section = "serve",
       .low = 0,
       .high = 1e6},
      {.name = "sam_url",
       .unit = "URL|off",
       .help = "the service that makes masks from points and words, another process (default: http://127.0.0.1:8001)",
       .section = "serve"},
      {.name = "trash_days",
       .type = T::Integer,
       .unit = "DAYS",
       .help = "how long deleted images stay in the trash (default: 30)",
       .section = "serve",
       .low = 0,
       .high = 36500},
      {.name = "data",
       .unit = "FOLDER",
       .help = "folder of the database and the images (default: the data folder, see `flux2 config path`)",
       .section = "serve",
       .common = true},
      {.name = "database",
       .unit = "URL",
       .help =
           "keep jobs and keys in PostgreSQL, postgres://USER@HOST/NAME, which several machines may share (default: flux2.db in "
           "the data folder)",
       .section = "serve"},
      {.name = "images",
       .unit = "FOLDER|s3://BUCKET/FOLDER",
       .help = "where images are kept, if not in the data folder; a store's keys come from AWS_ACCESS_KEY_ID and "
               "AWS_SECRET_ACCESS_KEY",
       .section = "serve"},
      {.name = "image_cache_mb",
       .type = T::Integer,
       .unit = "MB",
       .help = "disk space for local copies of images in an S3-compatible store (default: 4096)",
       .section = "serve",
       .low = 0,
       .high = 1e9},
      {.name = "no_worker", .type = T::Flag, .help = "run no jobs in this process: `flux2 worker` does", .section = "serve"},
      {.name = "url",
       .unit = "URL",
       .help = "address of the server (default: http://127.0.0.1:8190)",
       .section = "client",
       .common = true},
  };
  static const std::vector<Field> all = [] {
    std::vector<Field> list = fields;
    list.insert(list.end(), safety_fields().begin(), safety_fields().end());
    return list;
  }();
  return all;
}

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
    if (o.name == "grow") o.help = "widen the mask, 0 to 256 (default: 0)";
    if (o.name == "feather") o.help = "soften the edge of the mask, 0 to 256 (default: 0)";
  }
  return {selection,
          {"Output",
           {option("input", 'i'),
            option("output", 'o', "the mask: white is selected"),
            {"overlay", 0, "FILE", "the image with the mask over it in red"},
            option("show"),
            option("zoom")}},
          control_group()};
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
           {option("device"), option("threads", 't'), option("quant"), option("max_ram"), option("max_vram"), option("offload"),
            option("profile")}},
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
