#include "cli/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/dataset_report.h"
#include "app/learn_tokenizer.h"
#include "app/picture_maker.h"
#include "app/training_data.h"
#include "cli/describe.h"
#include "cli/output.h"
#include "cli/progress_display.h"
#include "cli/table.h"
#include "image/terminal.h"
#include "image/write_image.h"
#include "train/data/source_images.h"
#include "train/data/survey.h"

namespace flux2 {

namespace {

std::vector<OptionGroup> shared_groups(const std::vector<std::string>& titles, const std::vector<std::string>& without = {}) {
  std::vector<OptionGroup> groups;
  for (OptionGroup& group : generate_options()) {
    if (std::find(titles.begin(), titles.end(), group.title) == titles.end()) continue;
    std::erase_if(group.options,
                  [&](const OptionSpec& o) { return std::find(without.begin(), without.end(), o.name) != without.end(); });
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<OptionGroup> with_group(OptionGroup first, std::vector<OptionGroup> rest) {
  rest.insert(rest.begin(), std::move(first));
  return rest;
}

const OptionSpec kConfigOption = {"dataset-config", 0, "FILE", "the dataset file, .toml or .json; the same as the argument"};
const OptionSpec kWorkersOption = {"num-workers", 0, "N", "threads that read images (default: one less than the processor has)"};

OptionSpec rarely(OptionSpec o) {
  o.common = false;
  return o;
}

std::vector<OptionGroup> check_options() {
  return with_group(
      {"Dataset",
       {kConfigOption, {"musubi", 0, "", "also list the keys that musubi-tuner does not know and would refuse"}, kWorkersOption}},
      shared_groups({"Messages"}));
}

std::vector<OptionGroup> bucket_options() {
  return with_group({"Dataset", {kConfigOption, kWorkersOption}}, shared_groups({"Messages"}));
}

std::vector<OptionGroup> cache_options() {
  const OptionGroup dataset = {
      "Dataset",
      {kConfigOption,
       {"latents", 0, "", "make latents only"},
       {"text", 0, "", "make text states only"},
       {.name = "model-version",
        .value = "NAME",
        .help = "auto, dev, klein-4b, klein-base-4b, klein-9b or klein-base-9b. With it, --vae and --text-encoder are enough "
                "(default: auto, from the model)",
        .words = model_version_names()},
       {"skip-existing", 0, "", "keep every file that fits the configuration, even if its image or caption has changed"},
       {"keep-cache", 0, "", "keep cache files that belong to no image (default: they are deleted)"},
       {"all", 0, "", "make everything again (default: only what is missing or has changed)"},
       {.name = "vae-dtype",
        .value = "TYPE",
        .help = "of latents: float32, bfloat16 or float16; float32 is computed as in --profile exact (default: float32)",
        .words = {"float32", "bfloat16", "float16"}},
       {"fp8-text-encoder", 0, "", "the same as --quant-text-encoder fp8"},
       {"batch-size", 0, "N", "texts that are encoded together (default: 4); no effect on images, which are encoded one by one"},
       kWorkersOption,
       {"caption-variants", 0, "N", "shuffle_tags: how many orders of its tags each caption gets (default: 8)"},
       {.name = "debug-mode",
        .value = "HOW",
        .help = "only show what the images are scaled and cut to. console: in the terminal; video or image: as JPEG files in the "
                "cache folder",
        .common = false,
        .words = {"image", "console", "video"}},
       rarely({"console-width", 0, "N", "debug-mode console: columns (default: 80)"}),
       rarely({"console-num-images", 0, "N", "debug-mode console: images of each dataset (default: all)"}),
       rarely({"console-back", 0, "COLOR", "no effect; accepted because musubi-tuner has it"}),
       rarely({"disable-cudnn-backend", 0, "", "no effect; accepted because musubi-tuner has it"})}};
  return with_group(dataset, shared_groups({"Model", "Device and memory", "Messages"}, {"vae-dtype"}));
}

std::vector<OptionGroup> tokenizer_options() {
  return with_group({"Tokenizer",
                     {kConfigOption,
                      {"out", 0, "FOLDER", "where to write tokenizer.json, tokenizer_config.json and words.txt"},
                      {"entries", 0, "N", "tokens, those of the prompt template included (default: 1024)"},
                      {"captions", 0, "N", "captions of drawn scenes to learn from (default: 20000); of files, all are used"}}},
                    shared_groups({"Messages"}));
}

std::filesystem::path config_path(const Invocation& run) {
  const bool option = run.settings.has("dataset-config");
  check(run.positional.size() + (option ? 1 : 0) != 0, "name the dataset file, for example data.toml");
  check(run.positional.size() + (option ? 1 : 0) == 1, "give one dataset file, not {}", run.positional.size() + (option ? 1 : 0));
  return option ? run.settings.text("dataset-config") : run.positional[0];
}

int workers_of(const Invocation& run) { return static_cast<int>(run.settings.integer("num-workers", 0, 1024).value_or(0)); }

std::string size_text(PixelSize size) { return fmt::format("{}×{}", size.width, size.height); }

std::string plural(int64_t count, const std::string& what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

std::string epoch_text(int64_t batches) {
  return fmt::format("{} per epoch: as many steps, unless gradients are accumulated or several GPUs share them",
                     batches == 1 ? "1 batch" : fmt::format("{} batches", batches));
}

DType latent_dtype(const Invocation& run) {
  const std::string name =
      run.settings.choice("vae-dtype", {"float32", "fp32", "bfloat16", "bf16", "float16", "fp16"}, "float32");
  return name.ends_with("32") ? DType::F32 : name.starts_with("b") ? DType::BF16 : DType::F16;
}

// The request fields, with the options of this command in their words.
RequestSpec cache_spec(const Invocation& run) {
  SettingLayer own;
  const auto set = [&](const std::string& name, const std::string& value) { own[name] = {{value}, "--" + name}; };
  if (run.settings.has("vae-dtype")) set("vae-dtype", latent_dtype(run) == DType::F32 ? "float32" : "bfloat16");
  if (run.settings.flag("fp8-text-encoder")) set("quant-text-encoder", "fp8");
  RequestSpec spec = spec_of(run.settings.with(own));
  // A model that is only configured does not contradict the version that was asked for.
  if (run.settings.has("model-version") && !run.settings.is_asked("model") && !run.settings.is_asked("dit")) {
    spec.model.reset();
    spec.dit.reset();
  }
  return spec;
}

// Shows the scaled images instead of encoding them.
int show_prepared(Invocation& run, const std::filesystem::path& file, const std::string& mode) {
  const auto width = static_cast<int>(run.settings.integer("console-width", 8, 1000).value_or(80));
  const auto most = run.settings.integer("console-num-images", 1, 1'000'000).value_or(1'000'000);
  const Json content = read_json_or_toml(file);
  const auto configs = in_context(file.string(), [&] { return read_dataset_config(content, file, run.log); });
  for (const Dataset& dataset : list_datasets(configs, {}, run.log)) {
    int64_t shown = 0;
    for (const DatasetItem& item : dataset.items) {
      if (mode == "console" && shown++ == most) break;
      const PreparedItem prepared =
          prepare_item(dataset.config, item, read_sources(dataset.config, item, run.limits.image, run.log));
      const std::string size = size_text(prepared.bucket);
      if (mode == "console") {
        run.console.result(fmt::format("{} {}", item.image.string(), size));
        write_sequence(Channel::Result, show_image(prepared.target, TerminalProtocol::HalfBlocks,
                                                   {.columns = width, .cell_width = 1, .cell_height = 2})
                                            .bytes);
        continue;
      }
      const auto path = dataset.config.cache_directory /
                        fmt::format("{}_{:04}x{:04}.jpg", item.stem, prepared.original.width, prepared.original.height);
      std::filesystem::create_directories(path.parent_path());
      save_image(path, encode_jpeg(prepared.target));
      run.console.result_path(path.string());
    }
  }
  return 0;
}

}  // namespace

int run_dataset_check(Invocation& run) {
  const std::filesystem::path file = config_path(run);
  const Json content = read_json_or_toml(file);
  const std::vector<SurveyedDataset> datasets = survey_datasets(content, file, workers_of(run), run.limits.image, run.log);
  const bool trains =
      std::any_of(datasets.begin(), datasets.end(), [](const SurveyedDataset& d) { return !d.config.validation; });
  const std::vector<std::string> refused =
      run.settings.flag("musubi") ? keys_musubi_refuses(content) : std::vector<std::string>{};
  const int status = can_train(datasets) ? 0 : 2;
  if (run.console.json()) {
    Json json = {{"file", file.string()}};
    json.update(dataset_report(datasets));
    json["warnings"] = run.console.warnings();
    if (run.settings.flag("musubi")) json["musubi_refuses"] = refused;
    run.console.result(pretty(json));
    return status;
  }
  for (size_t i = 0; i < datasets.size(); ++i) {
    const auto& [config, survey] = datasets[i];
    run.console.result(fmt::format("{}: {} in {}, {}{}", dataset_name(i), plural(survey.images(), "image"),
                                   plural(static_cast<int64_t>(survey.buckets.size()), "bucket"),
                                   survey.batches() == 1 ? "1 batch" : fmt::format("{} batches", survey.batches()),
                                   config.validation ? ", for validation" : ""));
    for (const Finding& f : survey.findings)
      run.console.result(fmt::format("  {}: {}", f.kind == Finding::Stops ? "error" : "warning", f.text));
  }
  for (const std::string& key : refused) run.console.result(fmt::format("musubi-tuner does not know {}", key));
  if (run.settings.flag("musubi") && refused.empty()) run.console.result("musubi-tuner supports all keys");
  if (!trains) run.console.result("error: every dataset has validation = true, so there is nothing to train on");
  run.console.result(status == 0 ? epoch_text(training_batches(datasets)) : "training would stop: correct the errors");
  return status;
}

int run_dataset_buckets(Invocation& run) {
  const std::filesystem::path file = config_path(run);
  const std::vector<SurveyedDataset> datasets =
      survey_datasets(read_json_or_toml(file), file, workers_of(run), run.limits.image, run.log);
  for (size_t i = 0; i < datasets.size(); ++i)
    in_context(dataset_name(i), [&] { report_findings(datasets[i].survey.findings, run.log); });
  if (run.console.json()) {
    Json json = {{"file", file.string()}};
    json.update(dataset_report(datasets));
    json.erase("ok");
    json["warnings"] = run.console.warnings();
    run.console.result(pretty(json));
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"DATASET", "BUCKET", "REFERENCES", "IMAGES", "REPEATS", "BATCHES"}};
  for (size_t i = 0; i < datasets.size(); ++i)
    for (const BucketCount& bucket : datasets[i].survey.buckets) {
      std::vector<std::string> references;
      for (const PixelSize& r : bucket.references) references.push_back(size_text(r));
      rows.push_back({dataset_name(i) + (datasets[i].config.validation ? " (validation)" : ""), size_text(bucket.size),
                      references.empty() ? "-" : fmt::format("{}", fmt::join(references, " ")), fmt::format("{}", bucket.images),
                      fmt::format("{}", datasets[i].config.num_repeats), fmt::format("{}", bucket.batches)});
    }
  run.console.result(text_table(rows));
  run.console.result(epoch_text(training_batches(datasets)));
  return 0;
}

int run_dataset_cache(Invocation& run) {
  const std::filesystem::path file = config_path(run);
  if (run.settings.has("debug-mode"))
    return show_prepared(run, file, run.settings.choice("debug-mode", {"image", "console", "video"}, "console"));
  const bool latents = run.settings.flag("latents"), text = run.settings.flag("text");
  MakeCaches what;
  what.latents = latents || !text;
  what.text = text || !latents;
  what.caption_variants = run.settings.integer("caption-variants", 1, 1000).value_or(kCaptionVariants);
  what.options.everything = run.settings.flag("all");
  what.options.skip_existing = run.settings.flag("skip-existing");
  what.options.keep_cache = run.settings.flag("keep-cache");
  what.options.workers = workers_of(run);
  what.options.text_batch = run.settings.integer("batch-size", 1, 1024).value_or(4);
  what.options.latent_dtype = latent_dtype(run);
  check(!what.options.everything || !what.options.skip_existing, "--all and --skip-existing contradict each other");

  const RequestSpec spec = cache_spec(run);
  const std::string version = run.settings.choice("model-version", model_version_names(), "auto");
  const CacheTarget target = find_cache_target(spec, version, {what.latents, what.text}, run);
  const TrainingDataset dataset = open_training_dataset(file, target, run.log);
  ProgressDisplay display(run.console);
  const MadeCaches made = make_missing_caches(dataset, engine_options(spec, run), what, display.progress(), run);
  display.finish();

  std::vector<std::string> folders;
  for (const DatasetConfig& config : dataset.configs) folders.push_back(config.cache_directory.string());
  if (run.console.json()) {
    run.console.result(pretty({{"file", file.string()},
                               {"architecture", dataset.model.full_name},
                               {"cache_directories", folders},
                               {"images", made.images},
                               {"latents", made.latents},
                               {"texts", made.texts},
                               {"removed", made.removed},
                               {"warnings", run.console.warnings()}}));
    return 0;
  }
  const auto line = [&](const char* kind, bool asked, int64_t count) {
    if (asked) run.console.result(fmt::format("{}: {}", kind, count == 0 ? "all up to date" : fmt::format("{} encoded", count)));
  };
  line("latents", what.latents, made.latents);
  line("text states", what.text, made.texts);
  if (made.removed > 0)
    run.console.result(fmt::format("{} removed that belonged to no image", files_text(static_cast<size_t>(made.removed))));
  return 0;
}

int run_dataset_tokenizer(Invocation& run) {
  LearnTokenizer what;
  what.dataset = config_path(run);
  what.folder = run.settings.text("out");
  check(!what.folder.empty(), "name a folder for the tokenizer with --out FOLDER");
  what.entries = run.settings.integer("entries", 262, 1'000'000).value_or(what.entries);
  what.captions = run.settings.integer("captions", 1, 10'000'000).value_or(what.captions);
  const LearntTokenizer made = learn_tokenizer(what, run);
  if (run.console.json()) {
    run.console.result(pretty({{"path", what.folder.string()},
                               {"captions", made.captions},
                               {"entries", made.entries},
                               {"words", made.words},
                               {"warnings", run.console.warnings()}}));
  } else {
    run.console.result(fmt::format("{}: {} entries from {} captions with {} different words", what.folder.string(), made.entries,
                                   made.captions, made.words));
  }
  return 0;
}

int run_dataset(Invocation& run) {
  std::vector<std::string> names;
  for (const Command& action : dataset_actions()) names.push_back(action.name);
  check(!run.positional.empty(), "missing action. Use one of: {}", fmt::join(names, ", "));
  fail(ErrorCode::InvalidArgument, "unknown action \"{}\". Use one of: {}", run.positional[0], fmt::join(names, ", "));
}

std::vector<OptionGroup> dataset_options() { return shared_groups({"Messages"}); }

const std::vector<Command>& dataset_actions() {
  static const std::vector<Command> list = {
      {"check",
       {"lint"},
       "find what is wrong with a dataset before training",
       "CONFIG [options]",
       check_options,
       {"flux2 dataset check data.toml", "flux2 dataset check data.toml --musubi", "flux2 dataset check data.json --json"},
       run_dataset_check,
       "Reads the dataset file and every image. Errors: images that cannot be read, missing references, two images with one "
       "name, nothing to "
       "train on. Warnings: missing captions and masks, images that are enlarged, references with other proportions. The exit "
       "status is 2 if training would stop."},
      {"buckets",
       {},
       "list the sizes that images are scaled to, and the batches of an epoch",
       "CONFIG [options]",
       bucket_options,
       {"flux2 dataset buckets data.toml", "flux2 dataset buckets data.toml --json",
        "flux2 dataset buckets --dataset_config data.toml"},
       run_dataset_buckets,
       "Images share a batch if they and their references have the same sizes. The last batch of each bucket may be "
       "smaller."},
      {"cache",
       {},
       "encode images and captions once, for training",
       "CONFIG [--latents] [--text] [options]",
       cache_options,
       {"flux2 dataset cache data.toml -m flux.2-klein-base-4b", "flux2 dataset cache data.toml --latents --vae_dtype bfloat16",
        "flux2 dataset cache --dataset_config data.toml --model_version klein-base-4b --vae ae.safetensors --text_encoder "
        "text_encoder/ --skip_existing"},
       run_dataset_cache,
       "The files have the format of musubi-tuner, and each program can use the files of the other. Without options, flux2 "
       "writes files that are missing or out of date, and deletes files of images that no longer exist. `flux2 train` does the "
       "same before it begins."},
      {"caption",
       {},
       "describe the images of a folder in caption files",
       "FOLDER [options]",
       caption_options,
       {"flux2 dataset caption photos -m flux.2-dev --prefix \"myword, \"",
        "flux2 dataset caption photos --upsample ollama --upsample-model llama3.2-vision",
        "flux2 dataset caption photos --overwrite --about \"the dog is called Rex\""},
       run_dataset_caption,
       "Writes NAME.txt next to each image. Captions that exist are kept, so a run that was stopped goes on where it was when "
       "you "
       "repeat it. The text encoder of FLUX.2-dev can look at images; with --upsample, a chat server does it. The exit status is "
       "4 if images were left out."},
      {"tokenizer",
       {},
       "make a tokenizer from the captions of a dataset, for a text encoder that is trained from scratch",
       "CONFIG --out FOLDER [options]",
       tokenizer_options,
       {"flux2 dataset tokenizer scenes.toml --out tokenizer", "flux2 dataset tokenizer data.toml --out tokenizer --entries 2048",
        "flux2 dataset tokenizer scenes.toml --out tokenizer --captions 50000 --json"},
       run_dataset_tokenizer,
       "Byte-pair encoding with the splitting rule of Qwen: the merges are those that Hugging Face's tokenizers learns. "
       "words.txt "
       "lists the words of the captions."},
  };
  return list;
}

}  // namespace flux2
