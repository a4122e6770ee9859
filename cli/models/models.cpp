#include "cli/models/models.h"

#include <fmt/format.h>

#include "base/text.h"
#include "cli/models/options.h"
#include "cli/table.h"
#include "cli/user_input.h"

namespace flux2 {

const std::vector<Command>& model_actions() {
  static const std::vector<Command> list = {
      {"list",
       {"ls"},
       "list registered models and other models in the model folders, with size and state",
       "[TEXT] [options]",
       models_list_options,
       {"flux2 models list", "flux2 models list --type lora ink", "flux2 models list --variant klein --json"},
       run_models_list,
       "TEXT selects models whose name, variant or path contains it. Sizes include all files of a part."},
      {"info",
       {"show"},
       "show everything about a registered model",
       "NAME|KEY [--json]",
       models_plain_options,
       {"flux2 models info flux.2-klein-4b", "flux2 models info 1f0c9a3b2d", "flux2 models info ink --json"},
       run_models_info,
       "A model is given by its name, the beginning of its name, or its key."},
      {"scan",
       {},
       "search a folder and its subfolders for models",
       "[FOLDER…] [--add]",
       models_scan_options,
       {"flux2 models scan ~/ComfyUI/models", "flux2 models scan ~/.cache/huggingface/hub --add",
        "flux2 models scan /data --json"},
       run_models_scan,
       "Recognises single files, sharded sets, diffusers folders, the folders of other tools (diffusion_models, unet, vae, "
       "text_encoders, clip, loras, upscale_models) and hub caches. Does not follow links out of the folder. --add registers the "
       "usable models where they are; models that are registered already are updated and keep their name and description. "
       "Without FOLDER, the model folders are searched."},
      {"identify",
       {},
       "identify a file or folder and show the evidence, without registering it",
       "PATH… [--json]",
       models_plain_options,
       {"flux2 models identify klein.safetensors", "flux2 models identify text_encoder/",
        "flux2 models identify *.safetensors --json"},
       run_models_identify,
       "Reads headers only."},
      {"install",
       {"add"},
       "copy or download a model and register it",
       "SOURCE… [options]",
       models_install_options,
       {"flux2 models install flux.2-klein-4b", "flux2 models install unsloth/FLUX.2-klein-4B-GGUF:Q4_K_M --name klein-q4",
        "flux2 models install ~/Downloads/ink.safetensors --name ink"},
       run_models_install,
       "SOURCE is a file or folder (copied into the data folder, or used where it is with --in-place), the name of a starter, a "
       "repository of the hub (owner/name, owner/name:VARIANT, owner/name::folder, owner/name::a+b) or the address of a file. "
       "Repositories go into the cache shared with Python's huggingface_hub; HF_TOKEN, HF_HOME, HF_ENDPOINT and the like are "
       "respected. After an interruption, the same command continues where it stopped."},
      {"edit",
       {},
       "change a registered model's name, description, defaults or parts",
       "NAME|KEY [options]",
       models_edit_options,
       {"flux2 models edit flux.2-klein-4b --name klein", "flux2 models edit ink --trigger inkwash --lora-weight 0.8",
        "flux2 models edit klein --vae flux.2-vae-small-decoder"},
       run_models_edit,
       "An empty value removes a setting: --vae \"\"."},
      {"relate",
       {},
       "link models that belong together, such as a LoRA and its model",
       "NAME|KEY NAME|KEY… [--remove]",
       models_relate_options,
       {"flux2 models relate ink flux.2-klein-4b", "flux2 models relate flux.2-klein-4b ink charcoal",
        "flux2 models relate ink flux.2-klein-4b --remove"},
       run_models_relate,
       "Links the first model with each of the others. `models info` and the page show the link in both. It is a note for people "
       "and changes no image; `models edit --vae` chooses a part."},
      {"relocate",
       {"move"},
       "give the new path of a model whose files were moved by hand",
       "NAME|KEY PATH",
       models_plain_options,
       {"flux2 models relocate ink /data/loras/ink.safetensors", "flux2 models relocate flux.2-klein-4b /data/klein/transformer",
        "flux2 models relocate 1f0c9a3b2d ink.safetensors --json"},
       run_models_relocate,
       "The file must be the same kind of model. Key, name, description, trigger words, defaults and links stay. The files are "
       "used where they are; nothing is copied."},
      {"remove",
       {"rm"},
       "unregister models; --files also deletes their files",
       "NAME|KEY… [--files] [-y]",
       models_remove_options,
       {"flux2 models remove ink", "flux2 models remove flux.2-klein-4b --files", "flux2 models remove 1f0c9a3b2d --files -y"},
       run_models_remove,
       "Asks first. Deletes files only in the data folder and in hub caches, and never files that another registered model "
       "or another snapshot of a hub cache uses."},
      {"verify",
       {},
       "check files of registered models: size, SHA-256, header, values",
       "[NAME|KEY…] [options]",
       models_verify_options,
       {"flux2 models verify", "flux2 models verify flux.2-klein-4b --values", "flux2 models verify --quick --json"},
       run_models_verify,
       "The first run computes and stores hashes; later runs compare with them. The exit status is 4 if something is wrong."},
      {"missing",
       {},
       "list registered models whose files are gone, and missing parts of models",
       "[--json]",
       models_plain_options,
       {"flux2 models missing", "flux2 models missing --json", "flux2 models missing -v"},
       run_models_missing},
      {"orphans",
       {},
       "list files in the model folders that are not registered, or delete them",
       "[--delete [PATH…]] [--json]",
       models_orphans_options,
       {"flux2 models orphans", "flux2 models orphans --delete", "flux2 models orphans --delete loras/old.safetensors -y"},
       run_models_orphans,
       "Also lists what interrupted installations left behind. --delete asks for every file and folder in the data folder's "
       "models/ "
       "that belongs to no registered model, or for those that PATH names. It deletes nothing elsewhere and follows no links."},
      {"starter",
       {"starters"},
       "list starter sets: parts, sizes, licences, and what is already installed",
       "[NAME] [--json]",
       models_plain_options,
       {"flux2 models starter", "flux2 models starter flux.2-klein-4b-small", "flux2 models starter --json"},
       run_models_starter,
       "`flux2 models install NAME` downloads the missing parts."},
      {"cache",
       {},
       "list or delete what --quant and --text-cache keep on disk",
       "list|clear [--json]",
       models_plain_options,
       {"flux2 models cache list", "flux2 models cache clear", "flux2 models cache list --json"},
       run_models_cache,
       "With --quant on a CPU the quantised weights are written to the data folder, so that the next start maps them instead of "
       "quantising again. --quant-cache sets how much space they may take, or turns this off. The least recently used "
       "weights are deleted first. With --text-cache, the text states of prompts are kept too."},
      {"synth",
       {},
       "create a model with random weights",
       "--out FOLDER [options]",
       models_synth_options,
       {"flux2 models synth --variant tiny --out tiny-model/",
        "flux2 models synth --variant klein-4b --blocks 1,2 --layout diffusers --dtype f32 --out small-klein/",
        "flux2 models synth --variant klein-9b --needed-layers --out klein-9b/"},
       run_models_synth,
       "It has the names, shapes and files of a real model: for tests, and to measure speed and memory."},
      {"create",
       {},
       "create a model of your own sizes, to train it from scratch",
       "[DESCRIPTION] --out FOLDER [options]",
       models_create_options,
       {"flux2 models create --out my-pico", "flux2 models create model.toml --tokenizer tokenizer --out my-pico",
        "flux2 models create model.json --dtype f32 --out my-pico"},
       run_models_create,
       "DESCRIPTION is a TOML or JSON file with the tables transformer, autoencoder, text_encoder and defaults; what it leaves "
       "out "
       "is as in the bundled model. The weights are random: train them with `flux2 train --train PART --from_scratch`. "
       "examples/pico does this from start to finish."},
  };
  return list;
}

int run_models(Invocation& run) {
  if (run.positional.empty()) return run_models_list(run);
  std::vector<std::string> names;
  for (const Command& action : model_actions()) names.push_back(action.name);
  const std::string near = nearest_word(run.positional[0], names);
  throw Error(
      ErrorCode::InvalidArgument, fmt::format("unknown action \"{}\"", run.positional[0]),
      near.empty() ? "flux2 help models lists the actions; the action comes before its options" : "did you mean " + near + "?");
}

void refuse_arguments(const Invocation& run) {
  if (!run.positional.empty()) fail(ErrorCode::InvalidArgument, "unexpected argument \"{}\"", run.positional[0]);
}

std::string variant_text(const ModelRecord& r) { return r.variant.empty() ? r.family : r.variant; }

std::string origin_text(const ModelRecord& r) {
  if (r.source.kind == "hub") return fmt::format("{}@{}", r.source.ref, r.source.revision.substr(0, 8));
  if (r.source.kind == "url") return r.source.ref;
  return r.in_place ? "in place" : "copied from " + r.source.ref;
}

std::vector<std::string> described_row(const Described& part) {
  const ModelRecord& r = part.record;
  return {part.type, variant_text(r), r.quant, byte_text(r.bytes), name_of(r.state)};
}

bool show_bytes(Invocation& run, const std::string& what, uint64_t done, uint64_t total) {
  if (run.console.progress() == ProgressMode::Bar)
    run.console.status(fmt::format("{}  {} of {}", what, byte_text(done), byte_text(total)));
  if (run.console.progress() == ProgressMode::Json)
    run.console.event({{"event", "progress"}, {"file", what}, {"bytes", done}, {"total", total}});
  return interrupt_signal() == 0;
}

}  // namespace flux2
