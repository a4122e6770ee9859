// No prompt, file or setting can make the program read, write or print what it should not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/sha256.h"
#include "image/write_image.h"
#include "record/picture_metadata.h"
#include "tests/support/program.h"
#include "tests/support/pseudo_terminal.h"
#include "weights/safetensors_writer.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class CliSafety : public Cli {
 protected:
  bool has_toml() const { return flux2({"version", "-v"}).out.find("config files: yes") != std::string::npos; }

  // An image from a stranger that contains this record.
  void write_image(const std::string& name, const GenerationRecord& record) const {
    const Image image(32, 32, 3);
    save_image(folder_ / name, encode_png(image, picture_metadata(record, {}, ImageFormat::Png)));
  }
  static GenerationRecord recorded() {
    GenerationRecord record;
    record.model = "pico";
    record.request.prompt = "a red circle";
    record.request.width = record.request.height = 64;
    record.request.steps = 1;
    record.request.seed = 3;
    return record;
  }
  std::string hash_of(const fs::path& file) const {
    const std::string content = read_text_file(file);
    return sha256(std::as_bytes(std::span(content)));
  }
};

TEST_F(CliSafety, AProjectFileSetsDefaultsOfImagesOnly) {
  if (!has_toml()) GTEST_SKIP() << "built without toml++";
  write("flux2.toml",
        "[ui]\nlog-file = \"victim\"\n[generate]\nsteps = 1\noutput = \"victim.png\"\nwildcards = \"/\"\nmodel = \"pico\"\n"
        "[memory]\nthreads = 1\n[models]\npaths = [\"/\"]\n[limits]\nsteps = 1000\n[styles]\nnoir = \"{prompt} in black\"\n");
  const Finished done = flux2({"generate", "a fox", "--style", "noir", "-S", "1", "-o", "x.png"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_FALSE(exists("victim"));
  EXPECT_FALSE(exists("victim.png"));
  for (const char* key :
       {"ui.log-file", "generate.output", "generate.wildcards", "memory.threads", "models.paths", "limits.steps"})
    EXPECT_THAT(done.err, HasSubstr(std::string("flux2.toml: ") + key + " is not used")) << key;
  EXPECT_THAT(done.err, HasSubstr("home/config.toml"));
  EXPECT_THAT(done.err, Not(HasSubstr("generate.steps is not used")));
  const Json settings = parse_json(flux2({"inspect", "--json", "x.png"}).out)["settings"];
  EXPECT_EQ(settings["steps"], 1);
  EXPECT_EQ(settings["prompt"], "a fox in black");
}

TEST_F(CliSafety, AProjectFileNamesModelsButNoPaths) {
  if (!has_toml()) GTEST_SKIP() << "built without toml++";
  fs::create_directories(folder_ / "made");
  write("flux2.toml", "[generate]\nmodel = \"" + pico_folder().string() + "\"\n");
  const Finished path = generate({"a fox", "-o", "x.png"});
  EXPECT_EQ(path.status, 2);
  EXPECT_THAT(path.err, HasSubstr("is not a name"));
  EXPECT_THAT(path.err, HasSubstr("--model PATH"));
  write("flux2.toml", "[generate]\nmodel = \"made\"\n");
  EXPECT_THAT(generate({"a fox", "-o", "x.png"}).err, HasSubstr("unknown model made")) << "a folder here is no installed model";
}

TEST_F(CliSafety, UnknownKeysAreShownEscaped) {
  if (!has_toml()) GTEST_SKIP() << "built without toml++";
  write("flux2.toml", "\"evil\\u001b]0;owned\\u0007\\nssh-rsa AAAA\" = 1\n");
  const Finished refused = flux2({"generate", "a fox", "--log-file", "log.txt"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("unknown key"));
  for (const std::string& text : {refused.err, bytes("log.txt")}) {
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, Not(HasSubstr("\nssh-rsa"))) << "a line of the attacker's choice";
  }
}

TEST_F(CliSafety, PromptsNameAdaptersButNoPaths) {
  write("secret.txt", "root:x:0:0 the secret");
  for (const std::string& name : {(folder_ / "secret.txt").string(), std::string("/etc/passwd"), std::string("../secret.txt"),
                                  std::string("./secret.txt")}) {
    const Finished refused = generate({"a fox <lora:" + name + ":1>", "-o", "x.png"});
    EXPECT_EQ(refused.status, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("is not the name of an adapter"));
    EXPECT_THAT(refused.err, HasSubstr("give the path with --lora FILE:STRENGTH"));
    EXPECT_THAT(refused.err, Not(HasSubstr("root:x")));
  }
  const Finished here = generate({"a fox <lora:secret.txt:1>", "-o", "x.png"});
  EXPECT_EQ(here.status, 3) << "a file of the current folder is not installed: " << here.err;
  EXPECT_THAT(here.err, Not(HasSubstr("root:x")));
}

// std::regex recursed once per letter.
TEST_F(CliSafety, ALongTagInAPromptIsText) {
  write("prompts.txt", "<lora:" + std::string(200'000, 'a') + "\n");
  const Finished done = generate({"--prompt-file", "prompts.txt", "--size", "64", "-o", "x.png"});
  EXPECT_EQ(done.status, 0) << done.err.substr(0, 1000);
}

TEST_F(CliSafety, MetadataCannotNameOtherFiles) {
  fs::create_directories(folder_ / "private");
  fs::create_directories(folder_ / "pictures");
  save_image(folder_ / "private/photo.png", encode_png(Image(32, 32, 3)));
  const std::string hash = hash_of(folder_ / "private/photo.png");
  for (const std::string& name : {(folder_ / "private/photo.png").string(), std::string("../private/photo.png")}) {
    GenerationRecord record = recorded();
    record.kind = "edit";
    record.references = {{name, hash, 32, 32}};
    write_image("pictures/a.png", record);
    const Finished from = flux2({"generate", "--from", "pictures/a.png", "-o", "x.png"});
    EXPECT_EQ(from.status, 3) << name << ": " << from.err;
    EXPECT_THAT(from.err, HasSubstr("made from images that are not in its folder"));

    record = recorded();
    record.kind = "inpaint";
    record.mask_name = name, record.mask_sha256 = hash;
    write_image("pictures/b.png", record);
    EXPECT_EQ(flux2({"inpaint", "--from", "pictures/b.png", "-i", "private/photo.png", "-o", "x.png"}).status, 3);
    record.mask_name.clear(), record.mask_sha256.clear();
    record.mask_difference = {name, hash, 32, 32};
    write_image("pictures/b.png", record);
    EXPECT_EQ(flux2({"inpaint", "--from", "pictures/b.png", "-i", "private/photo.png", "-o", "x.png"}).status, 3);

    record = recorded();
    record.adapters = {{.name = name, .sha256 = hash}};
    write_image("pictures/c.png", record);
    const Finished adapter = flux2({"generate", "--from", "pictures/c.png", "-o", "x.png"});
    EXPECT_EQ(adapter.status, 2) << adapter.err;
    EXPECT_THAT(adapter.err, HasSubstr("is not the name of an adapter"));
  }
  GenerationRecord record = recorded();
  record.model = pico_folder();
  record.model_file = pico("flux-2-pico.safetensors");
  write_image("pictures/d.png", record);
  const Finished model = flux2({"generate", "--from", "pictures/d.png", "-o", "y.png"});
  EXPECT_THAT(model.err, HasSubstr("which is not installed; the default model is used"));

  record = recorded();
  record.app = "another program";
  record.request.prompt = "a fox <lora:/etc/passwd:1>";
  write_image("pictures/e.png", record);
  EXPECT_EQ(flux2({"generate", "--from", "pictures/e.png", "-o", "z.png"}).status, 2);
}

TEST_F(CliSafety, ForeignTextCannotControlTheTerminal) {
  const std::string evil =
      "fox \x1b]0;owned\x07 \xc2\x9b"
      "31m \xe2\x80\xae gpj \xe2\x81\xa6 \r over";
  GenerationRecord record = recorded();
  record.request.prompt = evil;
  record.model = "model\x1b[2J";
  write_image("a.png", record);
  const std::string file = "b\x1b[31m\xe2\x80\xae.png";
  write_image(file, record);
  const auto is_clean = [](const std::string& text) {
    for (const char* sequence : {"\x1b]", "\x1b[2J", "\x1b[31mb", "\x07", "\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6"})
      if (text.find(sequence) != text.npos) return false;
    return true;
  };
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"inspect", "a.png"},
                                                                                     {"inspect", "--raw", "a.png"},
                                                                                     {"inspect", file},
                                                                                     {"inspect", "--json", "a.png"},
                                                                                     {"verify", "a.png"},
                                                                                     {"inspect", "no\x1b]0;x\x07.png"},
                                                                                     {"generate", "--from", "a.png", "--dry-run"},
                                                                                     {"generate", "a", "--steps", "\x1b]0;x\x07"},
                                                                                     {"evil\x1b]0;x\x07"}}) {
    const Finished piped = flux2(words);
    EXPECT_TRUE(is_clean(piped.out) && is_clean(piped.err)) << words.front() << " " << words.back();
    PseudoTerminal terminal(start(words));
    terminal.wait();
    EXPECT_TRUE(is_clean(terminal.output())) << words.front() << " " << words.back();
  }
  // The meaning of the JSON output is unchanged.
  EXPECT_EQ(parse_json(flux2({"inspect", "--json", "a.png"}).out)["settings"]["prompt"], evil);
}

TEST_F(CliSafety, AbsurdCountsAreRefusedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const Finished batch = flux2({"plan", "a fox", "-b", "100000"});
  EXPECT_EQ(batch.status, 2);
  EXPECT_THAT(batch.err, HasSubstr("--batch: 100000 images; the limit is 1024"));
  EXPECT_THAT(batch.err, HasSubstr("`flux2 config set limits.batch 100000`"));
  EXPECT_THAT(flux2({"plan", "a fox", "--repeat", "1000000"}).err, HasSubstr("the limit is 100000"));
  EXPECT_THAT(generate({"a fox", "--size", "9000x64"}).err, HasSubstr("9000 pixels; the limit is 4096"));
  EXPECT_THAT(flux2({"generate", "a fox", "-s", "300"}).err, HasSubstr("300 steps; the limit is 256"));
  // A request within the limits is accepted; plan does not run it.
  const Finished large = flux2({"plan", "a fox", "-b", "1024", "--repeat", "100000", "-s", "256", "--json"});
  EXPECT_EQ(large.status, 0) << large.err;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(CliSafety, LimitsAreRaisedByTheUser) {
  if (!has_toml()) GTEST_SKIP() << "built without toml++";
  EXPECT_EQ(flux2({"config", "set", "limits.steps", "0"}).status, 2);
  EXPECT_EQ(flux2({"config", "set", "limits.steps", "300"}).status, 0);
  EXPECT_EQ(flux2({"generate", "a fox", "-s", "300", "--dry-run"}).status, 0);
  Start once = start({"generate", "a fox", "-s", "2", "--dry-run"});
  once.environment["FLUX2_LIMITS_STEPS"] = "1";
  EXPECT_EQ(run(once).status, 2) << "the environment comes first";
}

// The limits of the user reach the readers of files, whichever command runs.
TEST_F(CliSafety, LimitsOfFilesAreThoseOfTheUser) {
  write_image("a.png", recorded());
  write("prompts.txt", "a fox\na cat\n");
  const auto limited = [&](const std::string& name, const std::string& value, std::vector<std::string> words) {
    Start s = start(std::move(words));
    s.environment["FLUX2_LIMITS_" + name] = value;
    return run(s);
  };
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"inspect", "a.png"},
                                             {"edit", "-i", "a.png", "a fox", "-o", "x.png"},
                                             {"upscale", "a.png", "-o", "x.png"},
                                             {"vae", "encode", "a.png", "-o", "x.safetensors"}}) {
    const Finished refused = limited("IMAGE_PIXELS", "1000", words);
    EXPECT_NE(refused.status, 0) << words.front();
    EXPECT_THAT(refused.err, HasSubstr("1024 pixels")) << words.front();
    EXPECT_THAT(refused.err, HasSubstr("config set limits.image-pixels")) << words.front();
  }
  EXPECT_THAT(limited("METADATA_BYTES", "10", {"generate", "--from", "a.png", "--dry-run"}).err, HasSubstr("a.png"));
  EXPECT_THAT(limited("TEXT_BYTES", "10", {"generate", "--prompt-file", "prompts.txt", "--dry-run"}).err,
              HasSubstr("config set limits.text-bytes"));
  EXPECT_THAT(limited("REFERENCE_PIXELS", "4096", {"edit", "-i", "a.png", "a", "--no-resize-ref", "--dry-run"}).err,
              Not(HasSubstr("reference-pixels")));
  save_image(folder_ / "large.png", encode_png(Image(128, 64, 3)));
  EXPECT_THAT(limited("REFERENCE_PIXELS", "4096", {"edit", "-i", "large.png", "a", "--no-resize-ref", "--dry-run"}).err,
              HasSubstr("config set limits.reference-pixels"));
}

TEST_F(CliSafety, EmptyTextStatesAreRefused) {
  save_tensors(folder_ / "none.safetensors", {{"text.embeddings", Tensor::host_empty(DType::F32, {0, 384})},
                                              {"negative.embeddings", Tensor::host_empty(DType::F32, {0, 384})}});
  const Finished refused = generate({"--embeddings", "none.safetensors", "-o", "x.png"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("the given text states has shape [0, 384]"));
}

TEST_F(CliSafety, PromptsStayOutOfTheLogUnlessAsked) {
  std::string prompt;
  for (int i = 0; i < 300; ++i) prompt += "confidential circle ";
  const Finished usual = generate({prompt, "--size", "64", "-o", "x.png", "-vv", "--log-file", "log.txt"});
  ASSERT_EQ(usual.status, 0) << usual.err;
  EXPECT_THAT(usual.err, HasSubstr("bytes are not used"));
  EXPECT_THAT(bytes("log.txt"), Not(HasSubstr("confidential")));
  EXPECT_THAT(usual.err, HasSubstr("pico was not trained on the word \"confidential\""));  // this warning is for the person only
  EXPECT_EQ(usual.err.find("confidential"), usual.err.rfind("confidential")) << usual.err;
  EXPECT_EQ(parse_json(flux2({"inspect", "--json", "x.png"}).out)["settings"]["prompt"], prompt);
  EXPECT_THAT(generate({prompt, "--size", "64", "-o", "y.png", "--log-prompts"}).err, HasSubstr("confidential"));
}

TEST_F(CliSafety, AWatermarkIsWrittenAndFound) {
  const auto circle_on = [&](const std::string& colour, std::vector<std::string> more) {
    std::vector<std::string> words = {"generate", "a red circle on a " + colour + " background", "--size", "256", "-S", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return flux2(words);
  };
  const Finished done = circle_on("gray", {"--watermark", "flux", "-o", "marked.png"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, Not(HasSubstr("watermark")));
  EXPECT_THAT(circle_on("white", {"--watermark", "flux", "-o", "white.png"}).err, HasSubstr("the watermark cannot be read"));
  ASSERT_EQ(circle_on("gray", {"-o", "plain.png"}).status, 0);
  const Json marked = parse_json(flux2({"inspect", "--json", "--watermark", "flux", "marked.png"}).out);
  EXPECT_EQ(marked["settings"]["watermark"], "flux");
  EXPECT_TRUE(marked["watermark"]["found"].get<bool>()) << marked.dump();
  const Json plain = parse_json(flux2({"inspect", "--json", "--watermark", "flux", "plain.png"}).out);
  EXPECT_FALSE(plain["watermark"]["found"].get<bool>()) << plain.dump();
  EXPECT_THAT(flux2({"inspect", "--watermark", "flux", "marked.png"}).out, HasSubstr("watermark: found"));
  EXPECT_EQ(flux2({"inspect", "--watermark", "f", "marked.png"}).status, 2);

  const auto inpainted = [&](const std::string& canvas, const std::string& out) {
    return flux2({"inpaint", "a blue circle", "-i", canvas, "--mask-box", "96,96,64,64", "--watermark", "flux",
                  "--watermark-kept", "-S", "1", "-o", out});
  };
  EXPECT_THAT(inpainted("plain.png", "changed.png").err, Not(HasSubstr("watermark")));
  EXPECT_TRUE(
      parse_json(flux2({"inspect", "--json", "--watermark", "flux", "changed.png"}).out)["watermark"]["found"].get<bool>());
  EXPECT_THAT(inpainted("white.png", "changed-white.png").err, HasSubstr("the watermark cannot be read"));
}

}  // namespace
}  // namespace flux2::test
