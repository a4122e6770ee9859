// The program as a user runs it: the tests start it as a process and check its exit status, its streams and its files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/json.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/program.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(Cli, HelpOfEveryCommandSucceeds) {
  for (const char* command : {"generate", "gen", "txt2img", "inspect", "edit", "inpaint", "tokenize", "vae", "models", "config",
                              "doctor", "version", "help"}) {
    const Finished by_option = flux2({command, "--help"}), by_command = flux2({"help", command});
    EXPECT_EQ(by_option.status, 0) << command;
    EXPECT_EQ(by_command.status, 0) << command;
    // `config` is a topic too; its text follows the help of the command.
    EXPECT_TRUE(by_command.out.starts_with(by_option.out)) << command;
    EXPECT_THAT(by_option.out, HasSubstr("Examples:"));
  }
  EXPECT_EQ(flux2({"--help"}).status, 0);
  EXPECT_EQ(flux2({"--version"}).status, 0);
  EXPECT_THAT(flux2({"version", "-v"}).out, HasSubstr("writes:       png, jpg"));
}

TEST_F(Cli, WithoutArgumentsPrintsShortHelpAndFails) {
  const Finished alone = flux2({});
  EXPECT_EQ(alone.status, 2);
  EXPECT_EQ(alone.out, "");
  EXPECT_THAT(alone.err, HasSubstr("usage"));
}

TEST_F(Cli, WrongUsageIsExitTwo) {
  const Finished option = flux2({"generate", "--stpes", "4", "x"});
  EXPECT_EQ(option.status, 2);
  EXPECT_EQ(option.err, "flux2: unknown option --stpes\n  hint: did you mean --steps?\n");
  EXPECT_THAT(flux2({"generat", "x"}).err, HasSubstr("did you mean generate?"));
  EXPECT_EQ(flux2({"serve", "now"}).status, 2);
  EXPECT_EQ(flux2({"serve", "--port", "70000"}).status, 2);
  EXPECT_THAT(flux2({"models", "instal", "x"}).err, HasSubstr("did you mean install?"));
  EXPECT_EQ(generate({}).status, 2);  // no prompt
  EXPECT_THAT(generate({"a", "fox"}).err, HasSubstr("put the whole prompt in quotes"));
  write("photo.png", "any file");
  EXPECT_THAT(flux2({"edit", "photo.png", "a fox"}).err, HasSubstr("-i photo.png"));
  EXPECT_THAT(flux2({"convert", "a.safetensors", "b.gguf"}).err, HasSubstr("-o b.gguf"));
  EXPECT_EQ(generate({"a fox", "--size", "100x100", "--strict"}).status, 2);
  EXPECT_EQ(generate({"a fox", "--size", "16x16"}).status, 2);
  EXPECT_EQ(generate({"a fox", "-o", "x.gif"}).status, 2);
  EXPECT_EQ(generate({"a fox", "-o", "{sede}.png"}).status, 2);
  EXPECT_EQ(generate({"a fox", "--steps", "0"}).status, 2);
  EXPECT_EQ(generate({"a fox", "--device", "toaster"}).status, 2);
  EXPECT_EQ(generate({"a fox", "--schedule", "bent"}).status, 2);
  EXPECT_EQ(generate({"a fox", "-b", "2", "-o", "-"}).status, 2);
  EXPECT_EQ(generate({"a fox", "--show", "nowhere"}).status, 2);
  EXPECT_EQ(generate({"a fox", "--show", "blocks", "--zoom", "-1"}).status, 2);
  EXPECT_THAT(flux2({"a", "red", "fox", "--steps", "1"}).err, HasSubstr("put a prompt in quotes: `flux2 \"a red fox\"`"));
  EXPECT_FALSE(exists("outputs"));
}

TEST_F(Cli, MissingOrWrongModelsAreNamed) {
  const Finished missing = generate({"a fox", "-m", "nowhere.safetensors"});
  EXPECT_EQ(missing.status, 3);
  EXPECT_THAT(missing.err, HasSubstr("nowhere.safetensors"));
  const Finished folder = generate({"a fox", "-m", "/nowhere"});
  EXPECT_EQ(folder.status, 3);
  EXPECT_EQ(folder.err, "flux2: /nowhere does not exist\n");
  const Finished adapter = generate({"a fox", "--lora", "nowhere"});
  EXPECT_EQ(adapter.status, 3);
  EXPECT_THAT(adapter.err, HasSubstr("the adapter nowhere does not exist"));

  const std::string whole = read_text_file(pico("flux-2-pico.safetensors"));
  const Finished truncated = generate({"a fox", "--dit", write("cut.safetensors", whole.substr(0, whole.size() / 2))});
  EXPECT_EQ(truncated.status, 4);
  EXPECT_THAT(truncated.err, HasSubstr(std::to_string(whole.size())));

  EXPECT_EQ(
      generate({"a fox", "--dit", write("noise.safetensors", "this is no model file at all, whatever its name says")}).status, 4);
  EXPECT_EQ(generate({"a fox", "--dit", pico("ae.safetensors")}).status, 4);  // another kind of file
  EXPECT_EQ(generate({"a fox", "--vae", pico("flux-2-pico.safetensors")}).status, 4);

  const float zero[64] = {};
  std::vector<std::pair<std::string, Tensor>> flux1;
  for (const char* name :
       {"double_blocks.0.img_mod.lin.weight", "double_blocks.0.txt_mod.lin.weight", "single_blocks.0.modulation.lin.weight",
        "double_blocks.0.img_attn.qkv.weight", "img_in.weight", "txt_in.weight", "final_layer.linear.weight"})
    flux1.emplace_back(name, Tensor::host_copy(zero, DType::F32, {8, 8}));
  save_tensors(folder_ / "flux1.safetensors", flux1);
  const Finished old = generate({"a fox", "-m", "flux1.safetensors"});
  EXPECT_EQ(old.status, 4);
  EXPECT_THAT(old.err, HasSubstr("FLUX.1"));
}

TEST_F(Cli, OutputThatCannotBeWrittenIsExitSeven) {
  write("file", "x");
  const Finished blocked = generate({"a fox", "-o", "file/x.png"});
  EXPECT_EQ(blocked.status, 7);
  EXPECT_THAT(blocked.err, HasSubstr("file/x.png"));
  EXPECT_THAT(blocked.err, Not(HasSubstr("denoise")));  // reported before the image is computed
}

TEST_F(Cli, GuidanceIsLockedOnADistilledModel) {
  ASSERT_EQ(flux2({"models", "synth", "--variant", "tiny", "--out", "tiny"}).status, 0);
  const Finished locked = generate({"a fox", "-m", "tiny", "-g", "4", "--dry-run"});
  EXPECT_EQ(locked.status, 2) << locked.err;
  EXPECT_THAT(locked.err, HasSubstr("--cfg"));
  EXPECT_EQ(generate({"a fox", "-m", "tiny", "--cfg", "4", "--dry-run"}).status, 0);
}

TEST_F(Cli, StdoutContainsOnlyPaths) {
  const Finished one = generate({"a red circle", "-S", "7", "-o", "x.png"});
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out, "x.png\n");
  EXPECT_THAT(one.err, HasSubstr("seed 7"));
  EXPECT_THAT(one.err, HasSubstr("pico"));
  EXPECT_EQ(read_image(folder_ / "x.png").width, 128);
  const Finished quiet = generate({"a red circle", "-S", "7", "-o", "x.png", "-q"});
  EXPECT_EQ(quiet.err, "");
  const Finished piped = generate({"a red circle", "-S", "7", "-o", "-", "-q"});
  EXPECT_EQ(piped.status, 0);
  EXPECT_THAT(piped.out, testing::StartsWith("\x89PNG"));
}

TEST_F(Cli, AFirstArgumentThatIsAPromptOrAnOptionMeansGenerate) {
  const Finished bare = flux2({"a red circle", "-s", "1", "-o", "x.png"});
  EXPECT_EQ(bare.status, 0) << bare.err;
  EXPECT_TRUE(exists("x.png"));
  const Finished option_first = flux2({"-s", "1", "-o", "y.png", "-p", "circle"});
  EXPECT_EQ(option_first.status, 0) << option_first.err;
  EXPECT_TRUE(exists("y.png"));
  EXPECT_THAT(flux2({"--nonsense"}).err, HasSubstr("unknown option --nonsense"));
}

TEST_F(Cli, ResultsAsJson) {
  const Finished result = generate({"a red circle", "-S", "7", "-b", "2", "-o", "x.png", "--json", "--size", "100x130"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = parse_json(result.out);
  ASSERT_EQ(json["images"].size(), 2u);
  EXPECT_EQ(json["images"][1]["path"], "x-02.png");
  EXPECT_EQ(json["images"][1]["seed"], 8);
  EXPECT_EQ(json["images"][1]["index"], 1);
  EXPECT_EQ(json["images"][0]["width"], 96);
  EXPECT_EQ(json["images"][0]["height"], 128);
  EXPECT_EQ(json["model"], "pico");
  EXPECT_GT(json["timings"]["total"].get<int>(), 0);
  EXPECT_GT(json["memory"]["peak_resident"].get<int64_t>(), 0);
  // The size was rounded, and pico was not trained on it.
  EXPECT_THAT(json["warnings"].get<std::vector<std::string>>(), ElementsAre(HasSubstr("rounded"), HasSubstr("128x128")));
}

TEST_F(Cli, ProgressAsJsonLines) {
  const Finished result = generate({"a red circle", "-o", "x.png", "--progress", "json"});
  ASSERT_EQ(result.status, 0);
  std::istringstream lines(result.err);
  std::set<std::string> events, phases;
  for (std::string line; std::getline(lines, line);) {
    const Json event = parse_json(line);
    events.insert(event["event"]);
    if (event["event"] == "phase") phases.insert(event["name"]);
  }
  EXPECT_TRUE(events.contains("image") && events.contains("done"));
  EXPECT_TRUE(phases.contains("text") && phases.contains("denoise") && phases.contains("decode"));
}

TEST_F(Cli, BatchEqualsItsSingleImages) {
  const std::vector<std::string> common = {"a red circle", "--profile", "exact", "--metadata", "none"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    const Finished result = generate(more);
    EXPECT_EQ(result.status, 0) << result.err;
  };
  with({"-S", "5", "-b", "2", "-o", "both.png"});
  with({"-S", "5", "-o", "first.png"});
  with({"-S", "6", "-o", "second.png"});
  EXPECT_EQ(bytes("both-01.png"), bytes("first.png"));
  EXPECT_EQ(bytes("both-02.png"), bytes("second.png"));
  EXPECT_NE(bytes("first.png"), bytes("second.png"));
}

TEST_F(Cli, PatternsNeverOverwrite) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(generate({"a red circle", "-S", "3", "-o", "out/{seed}.{ext}"}).status, 0);
  EXPECT_TRUE(exists("out/3.png") && exists("out/3-2.png"));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(generate({"a red circle", "-S", "3", "-o", "numbered/%03d.jpg"}).status, 0);
  EXPECT_TRUE(exists("numbered/001.jpg") && exists("numbered/002.jpg"));
  ASSERT_EQ(generate({"a red circle", "-S", "3"}).status, 0);
  EXPECT_EQ(files_in("outputs"), 1u);
}

TEST_F(Cli, PromptsComeFromStandardInputAndFiles) {
  ASSERT_EQ(generate({"-p", "-", "-S", "3", "-o", "a.png"}, "a blue star\n").status, 0);
  EXPECT_EQ(parse_json(flux2({"inspect", "--json", "a.png"}).out)["settings"]["prompt"], "a blue star");
  write("prompts.txt", "# two\na red circle --d 1 --o one.png\n\na green heart --d 2 --s 1\n");
  const Finished listed = generate({"--prompt-file", "prompts.txt", "-o", "two.png"});
  EXPECT_EQ(listed.out, "one.png\ntwo.png\n") << listed.err;
}

TEST_F(Cli, ImagesContainTheirSettings) {
  ASSERT_EQ(generate({"a red circle, \"big\"", "-n", "dark", "-S", "11", "-o", "x.png", "--sidecar"}).status, 0);
  const Json found = parse_json(flux2({"inspect", "--json", "x.png"}).out);
  EXPECT_EQ(found["kind"], "image");
  EXPECT_EQ(found["source"], "flux2");
  EXPECT_EQ(found["settings"]["seed"], 11);
  EXPECT_EQ(found["settings"]["prompt"], "a red circle, \"big\"");
  EXPECT_EQ(found["settings"]["cfg"], 4.0);
  EXPECT_EQ(found["settings"]["model"]["sha256"].get<std::string>().size(), 64u);
  EXPECT_TRUE(found["generated"].get<bool>());
  EXPECT_THAT(found["texts"]["parameters"].get<std::string>(), HasSubstr("Negative prompt: dark\nSteps: 2, Sampler: Euler"));
  EXPECT_EQ(parse_json(bytes("x.png.json")), found["settings"]);
  const std::string shown = flux2({"inspect", "x.png"}).out;
  EXPECT_THAT(shown, HasSubstr("a red circle"));
  EXPECT_THAT(shown, HasSubstr("model:     id pico, file flux-2-pico.safetensors, sha256 "));
  EXPECT_THAT(shown, HasSubstr("time_ms:   text "));
  EXPECT_THAT(bytes("x.png"), Not(HasSubstr(folder_.string())));

  // The same settings give the same image again; a lossy format gives a similar one.
  ASSERT_EQ(flux2({"generate", "--from", "x.png", "-o", "again.png"}).status, 0);
  EXPECT_EQ(read_image(folder_ / "again.png"), read_image(folder_ / "x.png"));
  ASSERT_EQ(flux2({"generate", "--from", "x.png", "-o", "again.jpg"}).status, 0);
  EXPECT_EQ(parse_json(flux2({"inspect", "--json", "again.jpg"}).out)["settings"]["prompt"], "a red circle, \"big\"");

  ASSERT_EQ(generate({"a secret", "-o", "p.png", "--private"}).status, 0);
  EXPECT_THAT(bytes("p.png"), Not(HasSubstr("secret")));
}

TEST_F(Cli, InspectSaysWhatAModelIs) {
  const Finished model = flux2({"inspect", "--json", pico("flux-2-pico.safetensors")});
  ASSERT_EQ(model.status, 0) << model.err;
  EXPECT_EQ(parse_json(model.out)["components"][0]["family"], "FLUX.2");
  EXPECT_EQ(flux2({"inspect", "nowhere"}).status, 3);
  EXPECT_EQ(flux2({"inspect", write("cut.png", "\x89PNG\r\n\x1a\n????")}).status, 4);
}

// SIGINT in the middle of a run: no file, no temporary file, and the usual status.
TEST_F(Cli, AnInterruptionLeavesNoPartialFile) {
  fs::create_directories(folder_ / "out");
  Subprocess process(
      start({"generate", "a red circle", "-s", "40", "--size", "512x512", "-o", "out/x.png", "--progress", "json"}));
  ASSERT_TRUE(process.wait_for_error_text("\"name\":\"denoise\",\"step\":1"));
  process.signal(SIGINT);
  const Finished interrupted = process.wait();
  EXPECT_EQ(interrupted.status, 130) << interrupted.err;
  EXPECT_EQ(interrupted.out, "");
  EXPECT_EQ(files_in("out"), 0u);

  Subprocess other(start({"generate", "a red circle", "-s", "40", "--size", "512x512", "-o", "out/x.png", "--progress", "json"}));
  ASSERT_TRUE(other.wait_for_error_text("\"name\":\"denoise\",\"step\":1"));
  other.signal(SIGTERM);
  EXPECT_EQ(other.wait().status, 143);
}

TEST_F(Cli, TokenizesJsonLines) {
  const Finished lines =
      flux2({"tokenize", "--jsonl", "--tokenizer", pico("tokenizer")}, "\"a red circle\"\n\"\"\n\"caf\\u00e9 \\n x\"\n");
  ASSERT_EQ(lines.status, 0) << lines.err;
  std::istringstream out(lines.out);
  std::vector<Json> results;
  for (std::string line; std::getline(out, line);) results.push_back(parse_json(line));
  ASSERT_EQ(results.size(), 3u);
  EXPECT_GE(results[0]["ids"].size(), 3u);
  EXPECT_EQ(results[1]["ids"].size(), 0u);
  const Finished padded = flux2({"tokenize", "--length", "64", "--json", "a red circle"});
  EXPECT_EQ(parse_json(padded.out)["ids"].size(), 64u);
  EXPECT_EQ(flux2({"tokenize", "--jsonl"}, "not json\n").status, 4);
  EXPECT_EQ(flux2({"tokenize", "--tokenizer", "nowhere", "x"}).status, 3);
}

TEST_F(Cli, VaeRoundTrips) {
  ASSERT_EQ(generate({"a red circle", "-o", "x.png", "--latents-out", "made.safetensors", "--trace", "trace.safetensors"}).status,
            0);
  EXPECT_TRUE(exists("trace.safetensors"));
  const Finished decoded = flux2({"vae", "decode", "made.safetensors", "-o", "back.png"});
  ASSERT_EQ(decoded.status, 0) << decoded.err;
  EXPECT_EQ(read_image(folder_ / "back.png"), read_image(folder_ / "x.png"));
  ASSERT_EQ(flux2({"vae", "encode", "x.png", "-o", "coded.safetensors"}).status, 0);
  EXPECT_EQ(open_weights(folder_ / "coded.safetensors")->find("latents")->shape, (Shape{128, 8, 8}));
  EXPECT_EQ(flux2({"vae", "decode", "trace.safetensors", "-o", "y.png"}).status, 4);  // no `latents` inside
}

TEST_F(Cli, GivenTensorsReplaceTheEncoderAndTheSeed) {
  ASSERT_EQ(generate({"a red circle", "-S", "4", "-o", "x.png", "--metadata", "none", "--trace", "t.safetensors"}).status, 0);
  const Finished given =
      generate({"-o", "y.png", "--metadata", "none", "--embeddings", "t.safetensors", "--noise-file", "t.safetensors"});
  ASSERT_EQ(given.status, 0) << given.err;
  EXPECT_EQ(bytes("x.png"), bytes("y.png"));
  EXPECT_EQ(generate({"-o", "y.png", "--embeddings", "nowhere.safetensors"}).status, 3);
  EXPECT_EQ(generate({"-o", "y.png", "--embeddings", pico("ae.safetensors")}).status, 4);
}

TEST_F(Cli, ConfigurationIsKeptAndUsed) {
  if (flux2({"version", "-v"}).out.find("config files: yes") == std::string::npos) GTEST_SKIP() << "built without toml++";
  EXPECT_EQ(flux2({"config", "set", "generate.steps", "1"}).status, 0);
  EXPECT_EQ(flux2({"config", "get", "generate.steps"}).out, "1\n");
  EXPECT_THAT(flux2({"config", "list", "--origin"}).out, HasSubstr("generate.steps = 1"));
  EXPECT_EQ(parse_json(flux2({"generate", "a fox", "--dry-run"}).out)["requests"][0]["steps"], 1);
  EXPECT_EQ(flux2({"config", "set", "styles.noir", "{prompt} in black"}).status, 0);
  EXPECT_EQ(parse_json(flux2({"generate", "a fox", "--style", "noir", "--dry-run"}).out)["requests"][0]["prompt"],
            "a fox in black");
  EXPECT_EQ(parse_json(flux2({"config", "get", "generate.steps", "--json"}).out), Json({{"generate.steps", "1"}}));
  EXPECT_EQ(parse_json(flux2({"config", "styles", "--json"}).out)["noir"], "{prompt} in black");
  EXPECT_EQ(parse_json(flux2({"config", "path", "--json"}).out)["path"], (folder_ / "home/config.toml").string());
  EXPECT_EQ(flux2({"config", "set", "models.paths", "[\"a\", \"b c\"]"}).status, 0);
  EXPECT_EQ(flux2({"config", "get", "models.paths"}).out, "a,b c\n");
  EXPECT_EQ(flux2({"config", "set", "limits.side", "2048"}).status, 0);
  Start limited = start({"config", "get", "limits.side"});
  limited.environment["FLUX2_LIMITS_SIDE"] = "1024";
  EXPECT_EQ(run(limited).out, "1024\n");
  EXPECT_EQ(flux2({"config", "unset", "generate.steps"}).status, 0);
  EXPECT_EQ(flux2({"config", "get", "generate.steps"}).status, 3);
  const Finished unknown = flux2({"config", "get", "generate.stesp"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean generate.steps?"));
  const Finished typo = flux2({"config", "set", "generate.stesp", "1"});
  EXPECT_EQ(typo.status, 2);
  EXPECT_THAT(typo.err, HasSubstr("generate.steps"));
  write("flux2.toml", "[generate\n");
  EXPECT_EQ(flux2({"generate", "a fox", "--dry-run"}).status, 4);
}

TEST_F(Cli, EditsTakeTheSizeOfTheirReference) {
  ASSERT_EQ(generate({"a red circle", "-S", "1", "--size", "96x112", "-o", "a.png"}).status, 0);
  const Finished done = flux2({"edit", "-i", "a.png", "-s", "2", "a blue square", "-o", "b.png", "-S", "1"});
  ASSERT_EQ(done.status, 0) << done.err;
  const Image picture = read_image(folder_ / "b.png");
  EXPECT_EQ(picture.width, 96);
  EXPECT_EQ(picture.height, 112);
  const Json record = parse_json(flux2({"inspect", "--json", "b.png"}).out)["settings"];
  EXPECT_EQ(record["kind"], "edit");
  EXPECT_EQ(record["references"][0]["name"], "a.png");
  // Without the reference, the image is different.
  ASSERT_EQ(generate({"a blue square", "-S", "1", "--size", "96x112", "-o", "c.png"}).status, 0);
  EXPECT_NE(read_image(folder_ / "c.png"), picture);
  const Finished alone = flux2({"edit", "a blue square"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("editing needs an image"));
  EXPECT_EQ(flux2({"edit", "-i", "nowhere.png", "x"}).status, 3);
}

TEST_F(Cli, InpaintingKeepsEveryOtherByte) {
  Image canvas(301, 203, 3);
  for (size_t i = 0; i < canvas.pixels.size(); ++i) canvas.pixels[i] = static_cast<uint8_t>(i * 31 + i / 97);
  save_image(folder_ / "canvas.png", encode_png(canvas));
  const Finished done =
      flux2({"inpaint", "-i", "canvas.png", "--mask-box", "120,80,40,30", "a red circle", "-s", "2", "-o", "b.png"});
  ASSERT_EQ(done.status, 0) << done.err;
  const Image result = read_image(folder_ / "b.png");
  ASSERT_EQ(result.width, 301);
  ASSERT_EQ(result.height, 203);
  int inside = 0, outside = 0;
  for (int y = 0; y < 203; ++y)
    for (int x = 0; x < 301; ++x) {
      const bool differs = !std::equal(result.at(x, y), result.at(x, y) + 3, canvas.at(x, y));
      const bool near = x >= 104 && x < 176 && y >= 64 && y < 126;  // the box, grown and feathered
      (near ? inside : outside) += differs;
    }
  EXPECT_EQ(outside, 0);
  EXPECT_GT(inside, 1000);
  EXPECT_EQ(parse_json(flux2({"inspect", "--json", "b.png"}).out)["settings"]["kind"], "inpaint");
  ASSERT_EQ(flux2({"inpaint", "-i", "canvas.png", "--extend", "0,0,33,0", "a red circle", "-s", "2", "-o", "c.png"}).status, 0);
  EXPECT_EQ(read_image(folder_ / "c.png").width, 334);
  EXPECT_EQ(flux2({"inpaint", "-i", "canvas.png", "a red circle"}).status, 2);
}

TEST_F(Cli, LongPromptIsCutOrRejected) {
  std::string prompt = "a red circle";
  for (int i = 0; i < 100; ++i) prompt += " and a star";
  const Finished cut = generate({prompt, "-s", "1", "-o", "x.png"});
  EXPECT_EQ(cut.status, 0);
  EXPECT_THAT(cut.err, HasSubstr("warning: the prompt"));
  const Finished strict = generate({prompt, "-s", "1", "-o", "y.png", "--strict"});
  EXPECT_EQ(strict.status, 2);
  EXPECT_FALSE(exists("y.png"));
}

TEST_F(Cli, DoctorAndModelsSeeTheBundledModel) {
  const Finished doctor = flux2({"doctor", "--json"});
  EXPECT_EQ(doctor.status, 0) << doctor.out;
  EXPECT_TRUE(parse_json(doctor.out)["ok"].get<bool>());
  EXPECT_THAT(flux2({"models", "list"}).out, HasSubstr("(bundled)"));
  const Finished info = flux2({"models", "info", "pico"});
  EXPECT_EQ(info.status, 3);
  EXPECT_THAT(info.err, AnyOf(HasSubstr("pico is a bundled model, which is not registered"), HasSubstr("SQLite")));
  const Finished missing = flux2({"doctor", "-m", "klein-4b"});
  EXPECT_EQ(missing.status, 4);
  EXPECT_THAT(missing.out, HasSubstr("install it with `flux2 models install flux.2-klein-4b`"));
}

TEST_F(Cli, ArgumentsThatACommandDoesNotReadAreRefused) {
  for (const auto& [words, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"doctor", "pico"}, "flux2: doctor takes no arguments\n  hint: `flux2 doctor -m pico` checks a model\n"},
           {{"completions", "bash", "zsh"}, "flux2: completions are printed for one shell, not for 2\n"},
           {{"version", "pico"}, "flux2: version takes no arguments\n"},
           {{"config", "list", "generate.steps"}, "flux2: config is used as: config list\n"},
           {{"config", "path", "x"}, "flux2: config is used as: config path\n"}}) {
    const Finished refused = flux2(words);
    EXPECT_EQ(refused.status, 2) << words[0];
    EXPECT_EQ(refused.err, message);
    EXPECT_EQ(refused.out, "");
  }
}

}  // namespace
}  // namespace flux2::test
