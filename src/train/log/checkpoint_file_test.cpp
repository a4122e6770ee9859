#include "train/log/checkpoint_file.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file_hash.h"
#include "train/log/test_folder.h"
#include "train/log/test_tensors.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Pair;

RunFacts facts_of_a_run() {
  RunFacts f;
  f.session_id = 1234567890;
  f.started_at = 1763266747.5;
  f.finished_at = 1763270000.25;
  f.output_name = "my cat";
  f.learning_rate = 1e-4;
  f.train_items = 12;
  f.batches_per_epoch = 6;
  f.epochs = 16;
  f.gradient_checkpointing = true;
  f.max_train_steps = 96;
  f.base_model_version = "flux_2_klein_4b";
  f.mixed_precision = "bf16";
  f.seed = 42;
  f.optimizer = "torch.optim.adamw.AdamW";
  f.optimizer_args = {"weight_decay=0.1", "betas=0.9,0.99"};
  f.timestep_sampling = "flux2_shift";
  f.sd_model_name = "/models/klein/flux-2-klein-base-4b.safetensors";
  f.vae_name = "vae/";
  f.steps = 48;
  f.epoch = 8;
  f.network->dim = 32;
  f.network->alpha = 32;
  f.network->args = {{"rank_dropout", "0.1"}};
  RunFacts::Dataset d;
  d.width = 1024;
  d.height = 768;
  d.caption_extension = ".txt";
  d.batch_size = 2;
  d.enable_bucket = true;
  d.image_directory = "/data/cats/";
  d.control_directory = "/data/edges";
  d.has_control = true;
  f.datasets = {d};
  return f;
}

NamedTensors small_adapter() {
  return {{"lora_unet_single_blocks_0_linear1.lora_up.weight", formula_tensor({6, 2})},
          {"lora_unet_single_blocks_0_linear1.alpha", formula_tensor({})},
          {"lora_unet_single_blocks_0_linear1.lora_down.weight", formula_tensor({2, 4})}};
}

TEST(RunFacts, AreWrittenAsPythonWritesThem) {
  const auto m = metadata_of(facts_of_a_run());
  EXPECT_THAT(m, IsSupersetOf({
                     Pair("ss_session_id", "1234567890"),
                     Pair("ss_training_started_at", "1763266747.5"),
                     Pair("ss_training_finished_at", "1763270000.25"),
                     Pair("ss_output_name", "my cat"),
                     Pair("ss_learning_rate", "0.0001"),
                     Pair("ss_num_train_items", "12"),
                     Pair("ss_num_batches_per_epoch", "6"),
                     Pair("ss_num_epochs", "16"),
                     Pair("ss_gradient_checkpointing", "True"),
                     Pair("ss_gradient_checkpointing_cpu_offload", "False"),
                     Pair("ss_gradient_accumulation_steps", "1"),
                     Pair("ss_max_train_steps", "96"),
                     Pair("ss_lr_warmup_steps", "0"),
                     Pair("ss_lr_scheduler", "constant"),
                     Pair("ss_base_model_version", "flux_2_klein_4b"),
                     Pair("ss_network_module", "networks.lora_flux_2"),
                     Pair("ss_network_dim", "32"),
                     Pair("ss_network_alpha", "32.0"),
                     Pair("ss_network_dropout", "None"),
                     Pair("ss_network_args", R"({"rank_dropout":"0.1"})"),
                     Pair("ss_mixed_precision", "bf16"),
                     Pair("ss_seed", "42"),
                     Pair("ss_training_comment", "None"),
                     Pair("ss_optimizer", "torch.optim.adamw.AdamW(weight_decay=0.1,betas=0.9,0.99)"),
                     Pair("ss_max_grad_norm", "1.0"),
                     Pair("ss_fp8_base", "False"),
                     Pair("ss_full_fp16", "False"),
                     Pair("ss_full_bf16", "False"),
                     Pair("ss_weighting_scheme", "none"),
                     Pair("ss_logit_mean", "0.0"),
                     Pair("ss_logit_std", "1.0"),
                     Pair("ss_mode_scale", "1.29"),
                     Pair("ss_guidance_scale", "1.0"),
                     Pair("ss_timestep_sampling", "flux2_shift"),
                     Pair("ss_sigmoid_scale", "1.0"),
                     Pair("ss_discrete_flow_shift", "1.0"),
                     Pair("ss_sd_model_name", "flux-2-klein-base-4b.safetensors"),
                     Pair("ss_vae_name", "vae"),
                     Pair("ss_steps", "48"),
                     Pair("ss_epoch", "8"),
                     Pair("modelspec.sai_model_spec", "1.0.0"),
                     Pair("modelspec.architecture", "Flux.2-klein-4b/lora"),
                     Pair("modelspec.implementation", "https://github.com/black-forest-labs/flux2"),
                     Pair("modelspec.title", "my cat"),
                     Pair("modelspec.resolution", "1024x768"),
                 }));
  EXPECT_EQ(
      m.at("ss_datasets"),
      R"([{"resolution":[1024,768],"caption_extension":".txt","batch_size_per_device":2,"num_repeats":1,"enable_bucket":true,)"
      R"("bucket_no_upscale":false,"image_directory":"cats","control_directory":"edges","has_control":true}])");
  EXPECT_EQ(m.size(), 47u);  // the ones above, ss_datasets and modelspec.date
  EXPECT_EQ(m.at("modelspec.date").size(), std::string("2025-11-16T05:13:20").size());
}

TEST(RunFacts, OptionalKeysAppearOnlyIfTheyAreGiven) {
  RunFacts f = facts_of_a_run();
  f.learning_rate.reset();
  f.lr_scheduler = "adafactor:0.0001";
  f.output_name.reset();
  f.network->args = Json();
  f.modelspec = {.architecture = "Mine",
                 .title = {},
                 .author = "A",
                 .description = "D",
                 .license = "L",
                 .tags = "T",
                 .resolution = "512",
                 .min_timestep = 100,
                 .max_timestep = {}};
  f.extra["ss_flux2_references"] = "kv";
  const auto m = metadata_of(f);
  EXPECT_EQ(m.at("ss_learning_rate"), "None");
  EXPECT_EQ(m.at("ss_output_name"), "None");
  EXPECT_FALSE(m.contains("ss_network_args"));
  EXPECT_EQ(m.at("modelspec.title"), "LoRA@1763270000.25");
  EXPECT_EQ(m.at("modelspec.architecture"), "Mine/lora");
  EXPECT_EQ(m.at("modelspec.resolution"), "512x512");
  EXPECT_EQ(m.at("modelspec.timestep_range"), "100,1000");
  EXPECT_EQ(m.at("modelspec.author") + m.at("modelspec.description") + m.at("modelspec.license") + m.at("modelspec.tags"),
            "ADLT");
  EXPECT_EQ(m.at("ss_flux2_references"), "kv");
  f.modelspec.resolution = "big";
  EXPECT_THROW(metadata_of(f), Error);
  f.modelspec.resolution = "640,480";
  f.training_comment = "caf\xe9";  // not UTF-8
  EXPECT_EQ(metadata_of(f).at("modelspec.resolution"), "640x480");
  EXPECT_EQ(metadata_of(f).at("ss_training_comment"), "caf\\xe9");
}

TEST(RunFacts, MinimalMetadataKeepsWhatLoadingNeeds) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : metadata_of(facts_of_a_run(), MetadataKind::Minimal))
    if (!key.starts_with("modelspec.")) keys.push_back(key);
  EXPECT_THAT(keys,
              ElementsAre("ss_base_model_version", "ss_network_alpha", "ss_network_args", "ss_network_dim", "ss_network_module"));
}

TEST(RunFacts, FullModelsHaveNoNetwork) {
  RunFacts f = facts_of_a_run();
  f.network.reset();
  const auto m = metadata_of(f);
  for (const auto& [key, value] : m) EXPECT_FALSE(key.starts_with("ss_network")) << key;
  EXPECT_EQ(m.at("modelspec.architecture"), "Flux.2-klein-4b");
  EXPECT_EQ(m.at("ss_guidance_scale"), "1.0");
}

TEST(RunFacts, NumbersAndTitles) {
  EXPECT_EQ(python_number(1e-5), "1e-05");
  EXPECT_EQ(python_number(2e-6), "2e-06");
  EXPECT_EQ(python_number(0.0001), "0.0001");
  EXPECT_EQ(python_number(3), "3.0");
  EXPECT_EQ(python_number(1e16), "1e+16");
  EXPECT_EQ(python_number(123456789012345.0), "123456789012345.0");
  EXPECT_EQ(architecture_title("flux_2_dev"), "Flux.2-dev");
  EXPECT_EQ(architecture_title("flux_2_klein_9b"), "Flux.2-klein-9b");
  EXPECT_EQ(architecture_title("flux_2_custom_572ee0"), "Flux.2-custom");
}

TEST(CheckpointFile, HoldsTensorsMetadataAndHashes) {
  const TestFolder folder;
  const auto written = write_checkpoint(folder / "a.safetensors", small_adapter(), facts_of_a_run());
  EXPECT_EQ(written.sha256, sha256_of_file(written.file));
  EXPECT_EQ(written.bytes, std::filesystem::file_size(written.file));
  const auto source = open_weights(written.file);
  EXPECT_THAT(source->names(),
              ElementsAre("lora_unet_single_blocks_0_linear1.alpha", "lora_unet_single_blocks_0_linear1.lora_down.weight",
                          "lora_unet_single_blocks_0_linear1.lora_up.weight"));
  auto expected = metadata_of(facts_of_a_run());
  expected["sshs_model_hash"] = written.model_hash;
  expected["sshs_legacy_hash"] = written.legacy_hash;
  EXPECT_EQ(source->metadata(), expected);
  EXPECT_EQ(source->open("lora_unet_single_blocks_0_linear1.lora_up.weight").to_floats(), formula_tensor({6, 2}).to_floats());
}

// The expected hashes were computed with the reference writer of safetensors and Python's hashlib.
TEST(CheckpointFile, HashesAreThoseOfOtherPrograms) {
  const TestFolder folder;
  const NamedTensors tensors = {{"lora_unet_x.lora_down.weight", formula_tensor({64, 3000})},
                                {"lora_unet_x.lora_up.weight", formula_tensor({3000, 64})},
                                {"lora_unet_x.alpha", formula_tensor({})}};
  const auto f32 = write_checkpoint(folder / "f32.safetensors", tensors, facts_of_a_run());
  EXPECT_EQ(f32.model_hash, "acf668f45e67fe6ddd1a89e0af93e7ad59a3d10cba2f6eb62b4ef86fc59e1c37");
  EXPECT_EQ(f32.legacy_hash, "6b8ef891");
  // Everything is rounded, also alpha. The file ends before the part that the older hash covers.
  const auto bf16 = write_checkpoint(folder / "bf16.safetensors", tensors, facts_of_a_run(),
                                     {.precision = DType::BF16, .metadata = MetadataKind::Minimal});
  EXPECT_EQ(bf16.model_hash, "597fd2ee47a038009d652c6fe8d243b285f9ba853a9841e0caee19f41057fe95");
  EXPECT_EQ(bf16.legacy_hash, "e3b0c442");
  EXPECT_EQ(open_weights(bf16.file)->find("lora_unet_x.alpha")->dtype, DType::BF16);
  const auto f16 = write_checkpoint(folder / "f16.safetensors", tensors, facts_of_a_run(), {.precision = DType::F16});
  EXPECT_EQ(f16.model_hash, "23812c8615479f8e4c2fc9a2eeff95ef44ddedb29b987980359135c5b9824756");
}

TEST(CheckpointFile, FullModelsKeepTheirTypesAndHaveNoHashes) {
  const TestFolder folder;
  RunFacts facts = facts_of_a_run();
  facts.network.reset();
  const auto written =
      write_checkpoint(folder / "m.safetensors", {{"a", byte_tensor(5)}, {"b", formula_tensor({3})}}, facts,
                       {.precision = {}, .metadata = MetadataKind::Minimal, .more = {{"flux2.norm_groups", "8"}}});
  const auto source = open_weights(written.file);
  EXPECT_EQ(source->find("a")->dtype, DType::U8);
  EXPECT_EQ(source->find("b")->dtype, DType::F32);
  EXPECT_FALSE(source->metadata().contains("sshs_model_hash"));
  EXPECT_EQ(source->metadata().at("flux2.norm_groups"), "8") << "what the model needs is kept with the least metadata too";
  EXPECT_TRUE(written.model_hash.empty());
  EXPECT_EQ(written.sha256, sha256_of_file(written.file));
}

TEST(CheckpointFile, PrecisionsHaveNames) {
  EXPECT_EQ(save_precision_named("float"), DType::F32);
  EXPECT_EQ(save_precision_named("fp32"), DType::F32);
  EXPECT_EQ(save_precision_named("fp16"), DType::F16);
  EXPECT_EQ(save_precision_named("bf16"), DType::BF16);
  EXPECT_THROW(save_precision_named("int8"), Error);
}

}  // namespace
}  // namespace flux2
