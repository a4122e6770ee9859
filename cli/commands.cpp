#include <algorithm>

#include "cli/command.h"

namespace flux2 {

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"generate",
       {"gen", "txt2img"},
       "make pictures from a text",
       "[PROMPT] [options]",
       generate_options,
       {"flux2 generate \"a large red circle in the center on a blue background\" -o circle.png",
        "flux2 generate -m flux.2-klein-4b -p \"a lighthouse at dusk\" --size 16:9 --seed 7 --batch 4",
        "echo \"a castle on a pink background\" | flux2 generate -p - --preset best --show auto"},
       run_generate,
       "`flux2 \"a prompt\"` is short for this. stdout carries the paths of the pictures, one per line.",
       true},
      {"edit",
       {"img2img"},
       "make pictures from a text and up to 16 pictures",
       "-i PICTURE… [PROMPT] [options]",
       generate_options,
       {"flux2 edit -i photo.png \"make it winter\" -o winter.png",
        "flux2 edit -i room.jpg -i chair.jpg \"put the chair of image 2 into the room of image 1\" --match 1",
        "flux2 edit -i sketch.png \"an oil painting of this\" --size 1024 --seed 7 --batch 4"},
       run_edit,
       "The picture is as large as the first reference unless a size is given. generate takes references too; edit insists on one.",
       true},
      {"plan",
       {},
       "forecast memory and time of a generation, without running it",
       "[PROMPT] [options of generate]",
       generate_options,
       {"flux2 plan -m flux.2-klein-9b \"a lighthouse\" --size 1024", "flux2 plan \"a fox\" --quant int8 --batch 4 --device cpu",
        "flux2 plan --json \"a fox\""},
       run_plan,
       "Reads the headers of the model files alone. Memory is counted by the pipeline itself, on a device that computes nothing."},
      {"inspect",
       {},
       "say what a picture or model file is",
       "FILE… [--json] [--raw]",
       inspect_options,
       {"flux2 inspect picture.png", "flux2 inspect flux-2-klein-4b.safetensors", "flux2 inspect --json model-folder/"},
       run_inspect,
       "Reads our own settings, A1111 text, ComfyUI graphs and InvokeAI metadata; of models the headers only."},
      {"tokenize",
       {},
       "show a text as the model's tokens",
       "[TEXT…] [options]",
       tokenize_options,
       {"flux2 tokenize \"a red fox\"", "flux2 tokenize --template --length 512 --json \"a red fox\"",
        "flux2 tokenize --jsonl --tokenizer tokenizer/ < texts.jsonl"},
       run_tokenize,
       "Reads standard input when there is no text. With --jsonl each line gives one object with \"ids\"."},
      {"vae",
       {},
       "turn pictures into latents and back",
       "encode|decode FILE -o FILE",
       vae_options,
       {"flux2 vae encode photo.png -o photo.safetensors", "flux2 vae decode photo.safetensors -o back.png",
        "flux2 vae decode latents.safetensors --vae ae.safetensors -o picture.jpg --quality 90"},
       run_vae,
       "Latents are a tensor `latents` [128, h, w], one position for 16×16 pixels."},
      {"models",
       {},
       "list the models found; make a synthetic one",
       "list|synth [options]",
       models_options,
       {"flux2 models list", "flux2 models synth --variant tiny --out tiny-model/",
        "flux2 models synth --variant klein-4b --blocks 1,2 --layout diffusers --dtype f32 --out small-klein/"},
       run_models,
       "A synthetic model has the names, shapes and files of a real one and random weights."},
      {"config",
       {},
       "read and change the configuration",
       "get|set|unset|list|path|styles [KEY] [VALUE]",
       config_options,
       {"flux2 config set generate.width 768", "flux2 config list --origin",
        "flux2 config set styles.noir \"{prompt}, black and white film still, hard shadows\""},
       run_config,
       "Order: command line, FLUX2_* variables, flux2.toml in this folder, config.toml, built-in values."},
      {"bench",
       {},
       "measure how fast and how exactly a model runs here",
       "model|gemm|quant|train [options]",
       bench_options,
       {"flux2 bench model --variant klein-4b --size 512 --quant int8", "flux2 bench gemm --rows 768 --threads 2 --json", "flux2 bench quant --variant klein-4b --size 256"},
       run_bench,
       "Needs no model files. Each time is a median. gemm: matrix products beside the bare instruction and OpenBLAS; quant: "
       "what each --quant does to a step; train: one step of training a LoRA."},
      {"doctor",
       {},
       "check devices, memory, disk and models",
       "[options]",
       doctor_options,
       {"flux2 doctor", "flux2 doctor --json", "flux2 doctor -m flux.2-klein-4b"},
       run_doctor},
      {"version",
       {},
       "print the version; -v: what this build can do",
       "[-v]",
       version_options,
       {"flux2 version", "flux2 version -v", "flux2 version --json"},
       run_version},
      {"help",
       {},
       "print help for a command",
       "[COMMAND]",
       version_options,
       {"flux2 help", "flux2 help generate", "flux2 generate --help"},
       run_help},
  };
  return list;
}

const Command* find_command(std::string_view name) {
  for (const Command& command : commands())
    if (command.name == name ||
        std::find(command.aliases.begin(), command.aliases.end(), name) != command.aliases.end())
      return &command;
  return nullptr;
}

bool is_later_command(std::string_view name) {
  for (const char* later : {"inpaint", "grid", "upscale", "shell", "serve", "client", "lora",
                            "convert", "train", "dataset", "verify", "selftest"})
    if (name == later) return true;
  return false;
}

}  // namespace flux2
