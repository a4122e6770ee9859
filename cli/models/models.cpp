#include "cli/models/models.h"

#include <fmt/format.h>

#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/models/options.h"
#include "cli/table.h"

namespace flux2 {

const std::vector<Command>& model_actions() {
  static const std::vector<Command> list = {
      {"list",
       {"ls"},
       "what is registered, what else lies in the model folders, with size and state",
       "[TEXT] [options]",
       models_list_options,
       {"flux2 models list", "flux2 models list --type lora ink", "flux2 models list --variant klein --json"},
       run_models_list,
       "TEXT picks those whose name, variant or path contains it. Sizes are of all files of a part."},
      {"info",
       {"show"},
       "everything known about a registered model",
       "NAME|KEY [--json]",
       models_plain_options,
       {"flux2 models info flux.2-klein-4b", "flux2 models info 1f0c9a3b2d", "flux2 models info ink --json"},
       run_models_info,
       "Models are named by their name, its beginning, or their key."},
      {"scan",
       {},
       "look for models in a folder and below",
       "[FOLDER…] [--add]",
       models_scan_options,
       {"flux2 models scan ~/ComfyUI/models", "flux2 models scan ~/.cache/huggingface/hub --add",
        "flux2 models scan /data --json"},
       run_models_scan,
       "Knows single files, sharded sets, diffusers folders, the role folders of other tools (diffusion_models, unet, vae, "
       "text_encoders, clip, loras, upscale_models) and hub caches. Follows no link out of the folder. --add registers what "
       "can be used, in place; what is registered already is looked at again and keeps its name and description. Without a "
       "folder: the model folders."},
      {"identify",
       {},
       "say what a file or folder is, with the evidence; changes nothing",
       "PATH… [--json]",
       models_plain_options,
       {"flux2 models identify klein.safetensors", "flux2 models identify text_encoder/",
        "flux2 models identify *.safetensors --json"},
       run_models_identify,
       "Reads headers only."},
      {"install",
       {"add"},
       "bring a model here and register it",
       "SOURCE… [options]",
       models_install_options,
       {"flux2 models install flux.2-klein-4b", "flux2 models install unsloth/FLUX.2-klein-4B-GGUF:Q4_K_M --name klein-q4",
        "flux2 models install ~/Downloads/ink.safetensors --name ink"},
       run_models_install,
       "SOURCE is a file or folder (copied into the data folder, or used where it is with --in-place), the name of a starter, a "
       "repository of the hub (owner/name, owner/name:VARIANT, owner/name::folder, owner/name::a+b) or the address of a file. "
       "Repositories go into the cache shared with Python's hub library; HF_TOKEN, HF_HOME, HF_ENDPOINT and the like are "
       "honoured. Interrupted, the same command goes on where it was."},
      {"edit",
       {},
       "change a registered model's name, description, defaults or parts",
       "NAME|KEY [options]",
       models_edit_options,
       {"flux2 models edit flux.2-klein-4b --name klein", "flux2 models edit ink --trigger inkwash --lora-weight 0.8",
        "flux2 models edit klein --vae flux.2-vae-small-decoder"},
       run_models_edit,
       "An empty value takes back what was set: --vae \"\"."},
      {"remove",
       {"rm"},
       "take models off the list; with --files delete their files",
       "NAME|KEY… [--files] [-y]",
       models_remove_options,
       {"flux2 models remove ink", "flux2 models remove flux.2-klein-4b --files", "flux2 models remove 1f0c9a3b2d --files -y"},
       run_models_remove,
       "Asks first. Deletes files only in the data folder and in hub caches, there the links and then blobs nobody else "
       "needs; files that another registered model uses stay."},
      {"verify",
       {},
       "check files of registered models: size, SHA-256, header, values",
       "[NAME|KEY…] [options]",
       models_verify_options,
       {"flux2 models verify", "flux2 models verify flux.2-klein-4b --values", "flux2 models verify --quick --json"},
       run_models_verify,
       "The first time a hash is computed and kept, later ones are compared with it. Exit status 4 when something is wrong."},
      {"missing",
       {},
       "registered models whose files are gone, and parts that models lack",
       "[--json]",
       models_plain_options,
       {"flux2 models missing", "flux2 models missing --json", "flux2 models missing -v"},
       run_models_missing},
      {"orphans",
       {},
       "files in the model folders that nobody has registered",
       "[--json]",
       models_plain_options,
       {"flux2 models orphans", "flux2 models orphans --json", "FLUX2_HOME=/data/flux2 flux2 models orphans"},
       run_models_orphans,
       "Also what interrupted installations left behind."},
      {"starter",
       {"starters"},
       "sets to begin with: parts, sizes, licences, what is here already",
       "[NAME] [--json]",
       models_plain_options,
       {"flux2 models starter", "flux2 models starter flux.2-klein-4b-small", "flux2 models starter --json"},
       run_models_starter,
       "`flux2 models install NAME` brings the parts that are not here."},
      {"synth",
       {},
       "make a model with random weights",
       "--out FOLDER [options]",
       models_synth_options,
       {"flux2 models synth --variant tiny --out tiny-model/",
        "flux2 models synth --variant klein-4b --blocks 1,2 --layout diffusers --dtype f32 --out small-klein/",
        "flux2 models synth --variant klein-9b --needed-layers --out klein-9b/"},
       run_models_synth,
       "It has the names, shapes and files of a real one: for tests, speed and memory."},
  };
  return list;
}

int run_models(Invocation& run) {
  if (run.positional.empty()) return run_models_list(run);
  std::vector<std::string> names;
  for (const Command& action : model_actions()) names.push_back(action.name);
  const std::string near = nearest_word(run.positional[0], names);
  throw Error(ErrorCode::InvalidArgument, fmt::format("models knows no action \"{}\"", run.positional[0]),
              near.empty() ? "flux2 help models lists them; the action comes before its options" : "did you mean " + near + "?");
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
