#include "cli/models/options.h"

namespace flux2 {

namespace {

std::vector<OptionGroup> with_messages(OptionGroup own) {
  std::vector<OptionGroup> groups = version_options();  // what every command has
  groups.insert(groups.begin(), std::move(own));
  return groups;
}

}  // namespace

std::vector<OptionGroup> models_plain_options() { return version_options(); }

std::vector<OptionGroup> models_list_options() {
  return with_messages(
      {"Which",
       {{.name = "type",
         .value = "NAME",
         .help = "main, vae, text_encoder, tokenizer, lora, upscaler, tiny_vae, classifier, image_encoder or image_prompt",
         .words = {"main", "vae", "text_encoder", "tokenizer", "lora", "upscaler", "tiny_vae", "classifier", "image_encoder",
                   "image_prompt"}},
        {"variant", 0, "TEXT", "only models whose variant contains this: klein, 9b, Qwen3"},
        {.name = "format",
         .value = "NAME",
         .help = "safetensors, gguf, sharded or diffusers",
         .words = {"safetensors", "gguf", "sharded", "diffusers"}},
        {"names", 0, "", "print the names alone, one per line"}}});
}

std::vector<OptionGroup> models_scan_options() {
  return with_messages({"Scan", {{"add", 0, "", "register the usable models, in place"}}});
}

std::vector<OptionGroup> models_install_options() {
  return with_messages(
      {"Installation",
       {{"name", 0, "NAME", "its name (default: from the kind of model)"},
        {"in-place", 0, "", "use the files where they are instead of copying them"},
        {"revision", 0, "NAME", "branch, tag or commit of a repository (default: main)"},
        {"local-dir", 0, "FOLDER", "download plain files into this folder instead of the cache shared with Python"},
        {"token", 0, "TEXT", "token for gated repositories; HF_TOKEN or the token file keeps it out of your shell history"},
        {"dry-run", 0, "", "list files, sizes and destinations; download nothing"}}});
}

std::vector<OptionGroup> models_edit_options() {
  return with_messages({"Change",
                        {{"name", 0, "NAME", "another name"},
                         {"description", 0, "TEXT", "a free text"},
                         {"trigger", 0, "TEXT", "a phrase that triggers an adapter; may be repeated", true},
                         {"steps", 0, "N", "default number of steps"},
                         {"guidance", 0, "X", "default guidance, for models that have one"},
                         {"width", 0, "PX", "default width of images"},
                         {"height", 0, "PX", "default height of images"},
                         {"lora-weight", 0, "X", "default strength of an adapter, -4 to 4"},
                         {"vae", 0, "NAME|KEY", "the registered autoencoder to use with this model"},
                         {"text-encoder", 0, "NAME|KEY", "the registered text encoder"},
                         {"tokenizer", 0, "NAME|KEY", "the registered tokenizer"}}});
}

std::vector<OptionGroup> models_relate_options() {
  return with_messages({"Change", {{"remove", 0, "", "remove the links instead"}}});
}

std::vector<OptionGroup> models_orphans_options() {
  return with_messages({"Delete", {{"delete", 0, "", "delete files and folders that belong to no model, after asking"}}});
}

std::vector<OptionGroup> models_remove_options() { return with_messages({"Remove", {{"files", 0, "", "delete the files too"}}}); }

std::vector<OptionGroup> models_verify_options() {
  return with_messages({"Checks",
                        {{"values", 0, "", "read every weight and check that all are finite numbers"},
                         {"quick", 0, "", "trust the hash of files that have not changed since it was computed"}}});
}

std::vector<OptionGroup> models_synth_options() {
  return with_messages(
      {"A model with random weights",
       {{.name = "variant",
         .value = "NAME",
         .help =
             "klein-4b, klein-9b, dev, tiny or dev-tiny; clip-vit-large-patch14 or clip-tiny: an image encoder for image prompts "
             "(default: tiny)",
         .words = {"klein-4b", "klein-9b", "dev", "tiny", "dev-tiny", "clip-vit-large-patch14", "clip-tiny"}},
        {"blocks", 0, "D,S", "double and single blocks (default: the variant's)"},
        {"vae-width", 0, "N", "channels of the autoencoder's finest level, a multiple of 32 (default: the variant's)"},
        {.name = "layout", .value = "NAME", .help = "bfl or diffusers (default: bfl)", .words = {"bfl", "diffusers"}},
        {.name = "dtype",
         .value = "NAME",
         .help = "bf16 or f32 (default: bf16; f32 for an image encoder)",
         .words = {"bf16", "f32"}},
        {"seed", 0, "N", "of the weights (default: 0)"},
        {"base", 0, "", "a base model: not distilled"},
        {"needed-layers", 0, "", "leave out the layers of the text encoder that FLUX.2 does not use"},
        {"tokenizer", 0, "FOLDER", "copy this tokenizer (default: a small byte-level one)"},
        {"out", 0, "FOLDER", "where to write it"}}});
}

std::vector<OptionGroup> models_create_options() {
  return with_messages({"A model to train from scratch",
                        {{"out", 0, "FOLDER", "where to write it"},
                         {"tokenizer", 0, "FOLDER", "copy this tokenizer (default: a small byte-level one)"},
                         {"seed", 0, "N", "of the random weights (default: 0)"},
                         {.name = "dtype", .value = "NAME", .help = "bf16 or f32 (default: bf16)", .words = {"bf16", "f32"}}}});
}

}  // namespace flux2
