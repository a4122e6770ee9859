// Images that are encoded beside the computation are the same files in the same order.
#include "app/background_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/json.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class WriteInBackground : public testing::Test {
 protected:
  ~WriteInBackground() override { fs::remove_all(folder_); }

  std::string target(const std::string& name) {
    fs::create_directories(folder_ / name);
    return (folder_ / name / "{index}.png").string();
  }
  static Picture picture(int index) {
    Planes planes{.width = 48, .height = 32, .values = std::vector<float>(size_t{3} * 48 * 32)};
    for (size_t i = 0; i < planes.values.size(); ++i)
      planes.values[i] = static_cast<float>((i * static_cast<size_t>(index + 3)) % 255) / 127.5f - 1;
    return {.decoded = DecodedPicture(std::move(planes)),
            .seed = static_cast<uint64_t>(100 + index),
            .index = index,
            .rows = 2,
            .columns = 3,
            .latents = std::vector<float>(size_t{128} * 6, static_cast<float>(index))};
  }
  static GenerationRecord record() {
    GenerationRecord r;
    r.model = "pico";
    r.request.prompt = "a red circle";
    return r;
  }
  static Image refuse(const Image&) { throw Error(ErrorCode::CannotWrite, "no"); }

  fs::path folder_ = fs::path(testing::TempDir()) / ("background-" + std::to_string(::getpid()));
};

TEST_F(WriteInBackground, GivesTheSameFilesInTheSameOrder) {
  RequestSpec spec;
  spec.output_type = "both";
  PictureWriter one_by_one(spec), writer(spec);
  const std::string a = target("a"), b = target("b");
  one_by_one.expect(a, 9), writer.expect(b, 9);
  std::vector<uint64_t> seeds;
  BackgroundWriter background(writer, {.written = [&](const Picture& p, const WrittenPicture&) { seeds.push_back(p.seed); },
                                       .failed = [](const Error& e) { FAIL() << e.what(); }});
  std::vector<fs::path> expected;
  for (int i = 0; i < 9; ++i) {
    expected.push_back(one_by_one.write(picture(i), record(), a).path);
    background.add(picture(i), record(), b);
  }
  background.flush();
  EXPECT_EQ(seeds, (std::vector<uint64_t>{100, 101, 102, 103, 104, 105, 106, 107, 108}));
  for (const fs::path& path : expected) {
    const fs::path other = folder_ / "b" / path.filename();
    EXPECT_EQ(read_text_file(path), read_text_file(other)) << path.filename();
    EXPECT_TRUE(fs::exists(fs::path(other).replace_extension(".safetensors")));
  }
}

TEST_F(WriteInBackground, WithoutThreadsAnImageIsWrittenAtOnce) {
  PictureWriter writer{RequestSpec{}};
  const std::string to = target("a");
  writer.expect(to, 3);
  int written = 0;
  BackgroundWriter background(writer, {.written = [&](const Picture&, const WrittenPicture&) { ++written; },
                                       .failed = [](const Error& e) { FAIL() << e.what(); }});
  background.set_threads(0);
  for (int i = 0; i < 3; ++i) {
    background.add(picture(i), record(), to);
    EXPECT_EQ(written, i + 1);
  }
}

TEST_F(WriteInBackground, AFailureDoesNotLoseTheOthers) {
  PictureWriter writer{RequestSpec{}};
  const std::string to = target("a");
  writer.expect(to, 4);
  int written = 0, failed = 0;
  BackgroundWriter background(writer, {.written = [&](const Picture&, const WrittenPicture&) { ++written; },
                                       .failed =
                                           [&](const Error& e) {
                                             ++failed;
                                             throw e;
                                           }});
  const auto add_all = [&] {
    for (int i = 0; i < 4; ++i) background.add(picture(i), record(), to, i == 1 ? Finish(refuse) : Finish());
    background.flush();
  };
  EXPECT_THROW(add_all(), Error);
  background.flush();
  EXPECT_EQ(failed, 1);
  EXPECT_GE(written, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "a"), {}), written) << "and nothing is half-written";
}

}  // namespace
}  // namespace flux2
