#include <algorithm>
#include <map>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/dataset.h"
#include "cli/keys.h"
#include "cli/models/models.h"
#include "cli/models/options.h"
#include "cli/safety_command.h"

namespace flux2 {

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"generate",
       {"gen", "txt2img"},
       "generate images from text",
       "[PROMPT] [options]",
       generate_options,
       {"flux2 generate \"a large red circle in the center on a blue background\" -o circle.png",
        "flux2 generate -m flux.2-klein-4b -p \"a lighthouse at dusk\" --size 16:9 --seed 7 --batch 4",
        "echo \"a castle on a pink background\" | flux2 generate -p - --preset best --show auto"},
       run_generate,
       "`flux2 \"a prompt\"` is short for this. The paths of the images are printed on stdout, one per line.",
       true},
      {"edit",
       {"img2img"},
       "generate images from text and up to 16 reference images",
       "-i IMAGE… [PROMPT] [options]",
       generate_options,
       {"flux2 edit -i photo.png \"make it winter\" -o winter.png",
        "flux2 edit -i room.jpg -i chair.jpg \"put the chair of image 2 into the room of image 1\" --match 1",
        "flux2 edit -i sketch.png \"an oil painting of this\" --image-prompt sunset.png:0.8 --image-prompt-adapter colours"},
       run_edit,
       "The result has the size of the first reference unless a size is given. generate accepts references too; edit requires "
       "one.",
       true},
      {"inpaint",
       {},
       "regenerate part of an image, or extend it",
       "-i IMAGE [--mask FILE] [PROMPT] [options]",
       inpaint_options,
       {"flux2 inpaint -i photo.png --mask mask.png \"a red door\" -o door.png",
        "flux2 inpaint -i photo.png --mask-box 200,120,300,300 \"an empty street\" --strength 0.8",
        "flux2 inpaint -i photo.png --extend 0,0,512,0 \"the street goes on to the sea\""},
       run_inpaint,
       "Changes the first image inside the mask. Pixels outside the mask do not change. Further images are references. --size is "
       "the size of the region that is processed.",
       true},
      {"plan",
       {},
       "forecast the memory and time of a request without running it",
       "[PROMPT] [options of generate]",
       plan_options,
       {"flux2 plan -m flux.2-klein-9b \"a lighthouse\" --size 1024", "flux2 plan \"a fox\" --quant int8 --batch 4 --device cpu",
        "flux2 plan --json \"a fox\""},
       run_plan,
       "Reads only the headers of the model files. Counts memory by running the pipeline on a device that computes nothing. "
       "`flux2 plan train` forecasts training.",
       false,
       plan_actions},
      {"shell",
       {},
       "generate images interactively",
       "[options of generate]",
       shell_options,
       {"flux2 shell", "flux2 shell -m flux.2-klein-4b --size 768", "echo \"a red circle\" | flux2 shell -o circle.png"},
       run_shell,
       "A prompt generates an image, key=value changes a setting, $1 is the first image; `help` lists the rest. The "
       "model stays in memory. `flux2` without arguments in a terminal starts the shell, too."},
      {"grid",
       {},
       "generate a sheet that compares settings",
       "[PROMPT] --x OPTION=VALUES [--y …] [--z …] [options of generate]",
       grid_options,
       {"flux2 grid \"a red circle\" --x steps=2,4,8 --y cfg=1,3.5 -o sheet.png",
        "flux2 grid --x seed=1..4 --y \"prompt=a fox|a cat|an owl\" -o animals.png",
        "flux2 grid \"a lighthouse\" --x size=512,768,1024 --y quant=none,int8 --z seed=1..2 --cell 512 -o sheet.png"},
       run_grid,
       "Every cell is one image. All cells have the same seed unless seed is an axis. The single images are numbered and written "
       "next to the sheet. The metadata of the sheet lists them."},
      {"mask",
       {},
       "select part of an image and write it as a mask",
       "IMAGE --mask-wand X,Y|--mask-box X,Y,W,H|… -o FILE [options]",
       mask_options,
       {"flux2 mask photo.png --mask-wand 320,80:24 --grow 4 -o sky.png --overlay check.png",
        "flux2 mask photo.png --mask-ellipse 100,60,200,240 --mask-invert -o background.png",
        "flux2 mask before.png --mask-from-diff after.png --show auto"},
       run_mask,
       "Takes the same selections as inpaint. Several selections are added up. `flux2 inpaint -i photo.png --mask sky.png` uses "
       "the "
       "file."},
      {"upscale",
       {},
       "enlarge images",
       "IMAGE… [--scale X] [--method lanczos|esrgan|redraw] [options]",
       upscale_options,
       {"flux2 upscale small.png -o large.png", "flux2 upscale *.png --method esrgan --scale 4 -o large/",
        "flux2 upscale fox.png --method redraw -m flux.2-klein-4b -p \"a fox in the snow\" -o fox-large.png"},
       run_upscale,
       "esrgan needs an upscaler: `flux2 models install realesrgan-x4plus`. redraw regenerates the image at the larger size with "
       "the original as image 1, then aligns the result with it; with --tile-size it regenerates overlapping tiles of the "
       "enlarged "
       "image, which keeps its content."},
      {"verify",
       {},
       "regenerate an image from its own settings and compare",
       "IMAGE… [--tolerance N] [options]",
       verify_options,
       {"flux2 verify image.png", "flux2 verify --tolerance 2 outputs/*.png", "flux2 verify edited.png -i photo.png --json"},
       run_verify,
       "Prints the largest and the mean difference and the PSNR. The exit status is 0 if all images are identical or within the "
       "tolerance, and 10 otherwise. Images in lossy formats are never identical."},
      {"inspect",
       {},
       "show what an image or model file is",
       "FILE… [--json] [--raw]",
       inspect_options,
       {"flux2 inspect image.png", "flux2 inspect flux-2-klein-4b.safetensors", "flux2 inspect --json model-folder/"},
       run_inspect,
       "Reads settings that flux2, A1111, ComfyUI or InvokeAI wrote into an image. Reads only the headers of model files; -v "
       "also lists the tensors with their shapes and parameter counts."},
      {"tokenize",
       {},
       "show the tokens of a text",
       "[TEXT…] [options]",
       tokenize_options,
       {"flux2 tokenize \"a red fox\"", "flux2 tokenize --template --length 512 --json \"a red fox\"",
        "flux2 tokenize --jsonl --tokenizer tokenizer/ < texts.jsonl"},
       run_tokenize,
       "Reads standard input if no text is given. With --jsonl, each line gives one object with \"ids\"."},
      {"prompt",
       {},
       "rewrite prompts and describe images with a language model",
       "rewrite PROMPT | describe IMAGE [options]",
       prompt_options,
       {"flux2 prompt rewrite \"a fox\" --upsample ollama --upsample-model llama3.1",
        "flux2 prompt rewrite \"make it winter\" -i photo.png --upsample openrouter",
        "flux2 prompt describe photo.png -m flux.2-dev"},
       run_prompt,
       "docs/rewriting.md explains the services and their settings.",
       false,
       prompt_actions},
      {"safety",
       {},
       "show which prompts and images are checked, or check some by hand",
       "[check [IMAGE…] [--prompt TEXT]] [options]",
       safety_options,
       {"flux2 safety", "flux2 safety check photo.png", "flux2 safety check --prompt \"a red fox\" -m flux.2-klein-4b"},
       run_safety,
       "The section [safety] of the configuration switches checks on; docs/safety.md explains it.",
       false,
       safety_actions},
      {"encode-text",
       {},
       "encode a prompt into text states, for later runs without the text encoder",
       "PROMPT -o FILE [options]",
       encode_text_options,
       {"flux2 encode-text \"a red fox\" -o fox.safetensors",
        "flux2 encode-text \"a red fox\" -n \"blurry\" -m flux.2-klein-base-4b -o fox.safetensors",
        "flux2 generate --text-states fox.safetensors --seed 7 -o fox.png"},
       run_encode_text,
       "Writes the tensor `text.embeddings` [tokens, width] in f32, and `negative.embeddings` for models with true guidance. "
       "`generate --text-states FILE` reads them."},
      {"vae",
       {},
       "convert images to latents and back",
       "encode|decode FILE -o FILE",
       vae_options,
       {"flux2 vae encode photo.png -o photo.safetensors", "flux2 vae decode photo.safetensors -o back.png",
        "flux2 vae decode latents.safetensors --vae ae.safetensors -o image.jpg --quality 90"},
       run_vae,
       "Latents are stored as a tensor `latents` [128, h, w], one position per 16×16 pixels."},
      {"models",
       {},
       "list, find, install, check and remove models",
       "ACTION [arguments] [options]",
       models_list_options,
       {"flux2 models list", "flux2 models install flux.2-klein-4b", "flux2 models scan ~/ComfyUI/models --add"},
       run_models,
       "-m, --vae, --text-encoder, --tokenizer and --lora accept the names of registered models. `flux2 models ACTION --help` "
       "describes an action; without an action, the models are listed.",
       false,
       model_actions},
      {"convert",
       {"quantize"},
       "quantise a model file or change its layout",
       "FILE|FOLDER -o FILE|FOLDER [options]",
       convert_options,
       {"flux2 convert flux-2-klein-4b.safetensors -o klein-4b-Q4_K.gguf --quant q4_k",
        "flux2 convert klein.safetensors -o klein-fp8.safetensors --to comfy --quant fp8 --quant-rule 'txt_mlp=bf16'",
        "flux2 convert klein/ -o klein-nvfp4.safetensors --quant nvfp4 --calibrate prompts.txt"},
       run_convert,
       "Reads every file that `flux2 inspect` recognises. Needs little memory, and continues where an interrupted run stopped. "
       "Layers outside the blocks keep 16 bits unless a rule names them."},
      {"lora",
       {},
       "show, check, convert, merge, extract or average adapters",
       "info|check|convert|merge|extract|ema FILE… [options]",
       lora_options,
       {"flux2 lora check style.safetensors",
        "flux2 lora merge style.safetensors:0.7 --into klein.safetensors -o klein-style.safetensors",
        "flux2 lora ema step-200.safetensors step-400.safetensors step-600.safetensors --sigma-rel 0.15 -o average.safetensors"},
       run_lora,
       "Reads LoRA, DoRA, LoHa, LoKr, OFT and full differences of all common trainers. generate applies them with "
       "--lora."},
      {"dataset",
       {},
       "check training data, caption it and encode it for training",
       "check|buckets|cache|tokenizer CONFIG | caption FOLDER [options]",
       dataset_options,
       {"flux2 dataset check data.toml", "flux2 dataset buckets data.toml",
        "flux2 dataset cache data.toml -m flux.2-klein-base-4b"},
       run_dataset,
       "CONFIG is a dataset file of musubi-tuner, .toml or .json. `flux2 dataset ACTION --help` describes an action.",
       false,
       dataset_actions},
      {"train",
       {},
       "train an adapter (LoRA) on your own images",
       "[DATASET.toml] [options]",
       train_options,
       {"flux2 train cats.toml --preset character --sample_prompts prompts.txt --output_name cats",
        "flux2 train -m flux.2-klein-base-4b --dataset_config data.toml --network_dim 16 --network_alpha 16 --learning_rate 1e-4 "
        "--timestep_sampling flux2_shift --max_train_steps 1000 --save_every_n_steps 250 --save_state",
        "flux2 train photos.toml --kind image_prompt --image_prompt_encoder clip-vit-large-patch14 --output_name ip"},
       run_train,
       "Makes the caches that are missing, then trains. Options have the names of musubi-tuner. Ctrl-C saves and ends; the same "
       "command with --resume continues. The folder --output_dir receives adapters, states, sample images, a log and "
       "report.html. --kind image_prompt trains an adapter for --image-prompt of generate.",
       true,
       train_actions},
      {"config",
       {},
       "read and change the configuration",
       "get|set|unset|list|path|styles [KEY] [VALUE]",
       config_options,
       {"flux2 config set generate.width 768", "flux2 config list --origin",
        "flux2 config set styles.noir \"{prompt}, black and white film still, hard shadows\""},
       run_config,
       "Order of precedence, highest first: command line, FLUX2_* variables, flux2.toml in the current folder, config.toml in "
       "the data folder, built-in values."},
      {"bench",
       {},
       "measure the speed and accuracy of models on this machine",
       "model|gemm|quant|train|upscale|language [options]",
       bench_options,
       {"flux2 bench model --variant klein-4b --size 512 --quant int8", "flux2 bench gemm --rows 768 --threads 2 --json",
        "flux2 bench language --variant klein-4b --quant int8"},
       run_bench,
       "Needs no model files. Times are medians. gemm: matrix products compared with the hardware limit and OpenBLAS; quant: "
       "the effect of each --quant on a step; train: one step of training a LoRA; upscale: enlarging an image; language: the "
       "model that rewrites prompts."},
      {"doctor",
       {},
       "check devices, memory, disk and models",
       "[options]",
       doctor_options,
       {"flux2 doctor", "flux2 doctor --json", "flux2 doctor -m flux.2-klein-4b"},
       run_doctor},
      {"serve",
       {},
       "run a web page and an HTTP server: jobs with live events, OpenAI and A1111 interfaces",
       "[options]",
       serve_options,
       {"flux2 serve", "flux2 serve -m flux.2-klein-4b --preload --idle-unload 600",
        "flux2 serve --host 0.0.0.0 --api-key @key.txt --queue 20"},
       run_serve,
       "Prints its address on stdout: open it in a browser, or use it from programs. Requests wait in a queue and run one after "
       "the other; they survive a restart. "
       "Ctrl-C or SIGTERM ends the server; the job that runs goes back to the queue. docs/serving.md lists the routes."},
      {"worker",
       {},
       "run the jobs of a server on this machine or another one",
       "[options]",
       worker_options,
       {"flux2 worker", "flux2 worker --database postgres://flux2@db/flux2 --images /mnt/images -m flux.2-klein-4b --preload",
        "flux2 worker --database postgres://flux2@db/flux2 --images s3://bucket/images --device cuda:1"},
       run_worker,
       "Takes jobs from the queue that servers share, stores their images and answers no requests. Ctrl-C or SIGTERM ends it; "
       "the "
       "job that runs goes back to the queue. docs/serving.md describes several machines."},
      {"keys",
       {},
       "make, list and revoke keys for the server",
       "[add|list|revoke] [options]",
       keys_options,
       {"flux2 keys add laptop", "flux2 keys list", "flux2 keys revoke 01JD0000000000000000000000"},
       run_keys,
       "Only hashes of the keys are stored, in the data folder. A running server uses a new key, and refuses a revoked one, "
       "within five "
       "seconds. As soon as there is a key, every client needs one.",
       false,
       keys_actions},
      {"client",
       {},
       "generate images and train on a running server",
       "ACTION [options]",
       client_options,
       {"flux2 client generate \"a lighthouse at dusk\" -o lighthouse.png",
        "flux2 client edit --url http://gpu:8190 -i photo.png \"make it winter\" -o winter.png",
        "flux2 client train cats.toml --preset character"},
       run_client,
       "Takes the options of the local commands, shows the server's progress and saves the results here. Ctrl-C cancels the job "
       "on the server; a training run continues there. `flux2 client ACTION --help` describes an action.",
       false,
       client_actions},
      {"selftest",
       {},
       "check that this build computes correct results here",
       "[options]",
       selftest_options,
       {"flux2 selftest", "flux2 selftest --json", "flux2 selftest --write-reference models/pico/selftest.json"},
       run_selftest,
       "Runs the bundled model on every device, instruction set and numeric profile of this machine and compares the results "
       "with "
       "stored ones; checks the files of the model too. Takes less than a minute. Exit status 0: everything passed; 10: a result "
       "deviates; 4: a file was changed."},
      {"version",
       {},
       "print the version; -v lists what this build supports",
       "[-v]",
       version_options,
       {"flux2 version", "flux2 version -v", "flux2 version --json"},
       run_version},
      {"completions",
       {},
       "print the completion script of a shell",
       "bash|zsh|fish",
       version_options,
       {"source <(flux2 completions bash)", "flux2 completions zsh > ~/.zfunc/_flux2",
        "flux2 completions fish > ~/.config/fish/completions/flux2.fish"},
       run_completions,
       "An installed program has them already. They complete commands, options, values, files and the names of your models."},
      {"man",
       {},
       "print a manual page",
       "[COMMAND [ACTION]] [--out FOLDER]",
       man_options,
       {"flux2 man generate | man -l -", "flux2 man models install | man -l -", "flux2 man --out ~/.local/share/man/man1"},
       run_man,
       "The source of the page, as `man` reads it. An installed program has them already: `man flux2-generate`."},
      {"help",
       {},
       "print help for a command or a topic",
       "[COMMAND|TOPIC] [--help-all]",
       version_options,
       {"flux2 help generate", "flux2 generate --help-all", "flux2 help environment"},
       run_help},
  };
  return list;
}

namespace {

const Command* find_in(const std::vector<Command>& list, std::string_view name) {
  for (const Command& command : list)
    if (command.name == name || std::find(command.aliases.begin(), command.aliases.end(), name) != command.aliases.end())
      return &command;
  return nullptr;
}

}  // namespace

const Command* find_command(std::string_view name) { return find_in(commands(), name); }

const Command* Command::find_action(std::string_view action) const { return actions ? find_in(actions(), action) : nullptr; }

std::string equivalent_command(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  static const std::map<std::string, std::string> equivalents = {{"run", "generate"},
                                                                 {"create", "generate"},
                                                                 {"draw", "generate"},
                                                                 {"imagine", "generate"},
                                                                 {"pull", "models install"},
                                                                 {"download", "models install"},
                                                                 {"install", "models install"},
                                                                 {"list", "models list"},
                                                                 {"ls", "models list"},
                                                                 {"rm", "models remove"},
                                                                 {"remove", "models remove"},
                                                                 {"delete", "models remove"},
                                                                 {"show", "models info"},
                                                                 {"scan", "models scan"},
                                                                 {"search", "models starter"},
                                                                 {"info", "inspect"},
                                                                 {"chat", "shell"},
                                                                 {"repl", "shell"},
                                                                 {"benchmark", "bench"},
                                                                 {"completion", "completions"},
                                                                 {"env", "help environment"},
                                                                 {"test", "selftest"},
                                                                 {"check", "doctor"}};
  const auto found = equivalents.find(words[0]);
  if (found == equivalents.end()) return {};
  std::string command = found->second;
  // `run MODEL "a prompt"` names the model first.
  const bool with_model = words[0] == "run" && words.size() > 1 && words[1].find(' ') == std::string::npos && words[1][0] != '-';
  for (size_t i = 1; i < words.size(); ++i)
    command += std::string(with_model && i == 1 ? " -m" : "") +
               (words[i].find(' ') == std::string::npos ? " " + words[i] : " \"" + words[i] + "\"");
  return command;
}

}  // namespace flux2
