#include "app/captioning.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Describes an image by its width.
class Describer : public Rewriter {
 public:
  RewriteAnswer answer(const RewriteQuestion& question, const Cancelled&) override {
    asked.push_back(question.images.at(0).width);
    if (fails) fail(*fails, "no answer");
    return {fmt::format("An image,\n {} wide.", question.images[0].width)};
  }
  std::string way() const override { return "test"; }
  std::string model() const override { return "test model"; }
  std::string place() const override { return ""; }
  bool sees_images() const override { return sees; }

  std::vector<int> asked;
  std::optional<ErrorCode> fails;
  bool sees = true;
};

class Captioning : public testing::Test {
 protected:
  Captioning() : folder_(fs::path(testing::TempDir()) / fmt::format("captions-{}", ::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "inside");
    image("a.png", 1);
    image("b.png", 2);
    image("c.png", 3);
    image("inside/d.png", 4);
  }
  ~Captioning() override { fs::remove_all(folder_); }

  void image(const std::string& name, int width) const { save_image(folder_ / name, encode_png(Image(width, 4, 3))); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name, std::ios::binary) << text; }
  std::string text(const std::string& name) const { return fs::exists(folder_ / name) ? read_text_file(folder_ / name) : "none"; }
  CaptionReport run(CaptionOptions options = {}, const Rewriter::Cancelled& cancelled = {}) {
    options.folder = folder_;
    return caption_images(options, describer_, context_, cancelled);
  }

  fs::path folder_;
  Describer describer_;
  AppContext context_;
};

TEST_F(Captioning, WritesAFileNextToEachImage) {
  const CaptionReport report = run({.prefix = "myword, "});
  EXPECT_EQ(report.images, 3);
  EXPECT_EQ(report.written, 3);
  EXPECT_EQ(text("a.txt"), "myword, An image, 1 wide.\n");
  EXPECT_EQ(text("c.txt"), "myword, An image, 3 wide.\n");
  EXPECT_EQ(text("inside/d.txt"), "none");
  EXPECT_EQ(run({.recursive = true}).written, 1) << "the others have captions now";
  EXPECT_EQ(text("inside/d.txt"), "An image, 4 wide.\n");
}

TEST_F(Captioning, KeepsCaptionsUnlessAsked) {
  write("b.txt", "mine");
  EXPECT_EQ(run().kept, 1);
  EXPECT_EQ(text("b.txt"), "mine");
  EXPECT_THAT(describer_.asked, ElementsAre(1, 3));
  EXPECT_EQ(run({.overwrite = true}).written, 3);
  EXPECT_EQ(text("b.txt"), "An image, 2 wide.\n");
}

TEST_F(Captioning, ARunThatWasStoppedGoesOn) {
  int looked = 0;
  EXPECT_THROW(run({}, [&] { return ++looked > 1; }), Error);
  EXPECT_EQ(text("a.txt"), "An image, 1 wide.\n") << "nothing is lost";
  EXPECT_EQ(text("b.txt"), "none");
  const CaptionReport rest = run();
  EXPECT_EQ(rest.kept, 1);
  EXPECT_EQ(rest.written, 2);
  EXPECT_THAT(describer_.asked, ElementsAre(1, 2, 3));
}

TEST_F(Captioning, ADamagedImageIsLeftOut) {
  write("b.png", "not an image");
  const CaptionReport report = run();
  EXPECT_EQ(report.written, 2);
  ASSERT_EQ(report.failed.size(), 1u);
  EXPECT_THAT(report.failed[0], HasSubstr("b.png"));
  EXPECT_EQ(text("b.txt"), "none");
}

TEST_F(Captioning, AServiceThatDoesNotAnswerStopsTheRun) {
  describer_.fails = ErrorCode::Network;
  EXPECT_THROW(run(), Error);
  EXPECT_THAT(describer_.asked, ElementsAre(1));
  // Answers that are of no use concern one image, unless there are many in a row.
  describer_.fails = ErrorCode::BadFile;
  EXPECT_EQ(run().failed.size(), 3u);
  for (int i = 0; i < 6; ++i) image(fmt::format("e{}.png", i), 10 + i);
  EXPECT_THROW(run(), Error);
}

TEST_F(Captioning, RefusesWhatWouldGoWrong) {
  image("a.jpg.png", 9);
  save_image(folder_ / "a.jpg", encode_jpeg(Image(7, 4, 3)));
  const CaptionReport report = run();
  ASSERT_EQ(report.failed.size(), 1u) << "a.png and a.jpg would share a caption";
  EXPECT_THAT(report.failed[0], HasSubstr("the same caption file a.txt"));
  EXPECT_EQ(text("a.jpg.txt"), "An image, 9 wide.\n");
  EXPECT_THROW(run({.extension = "txt"}), Error);
  describer_.sees = false;
  EXPECT_THROW(run({.overwrite = true}), Error);
  folder_ /= "missing";
  EXPECT_THROW(run(), Error);
}

}  // namespace
}  // namespace flux2
