// Selecting by words and points: the program asks a mask service.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/mask.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/http_server.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class CliMaskService : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    save_image(folder_ / "image.png", encode_png(Image(64, 48, 3)));
    Image found(64, 48, 1);
    add_box(found, {10, 12, 20, 16});
    const auto bytes = encode_png(found);
    reply_.body.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  Finished mask(std::vector<std::string> words) const {
    words.insert(words.begin(), {"mask", "image.png", "-o", "mask.png", "--mask-service", server_.url()});
    return flux2(words);
  }

  Reply reply_;
  HttpServer server_{[this](const ServedRequest&) { return reply_; }};
};

TEST_F(CliMaskService, FindsWhatWordsName) {
  const Finished made = mask({"--mask-text", "the red car", "--mask-confidence", "0.25"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(bounds(mask_of_picture(read_image(folder_ / "mask.png"))), (Box{10, 12, 20, 16}));
  const ServedRequest asked = server_.requests().at(0);
  EXPECT_EQ(asked.target, "/segment/text");
  EXPECT_THAT(asked.body, HasSubstr("the red car"));
  EXPECT_THAT(asked.body, HasSubstr("0.25"));
}

TEST_F(CliMaskService, FindsTheObjectAtPoints) {
  ASSERT_EQ(mask({"--mask-points", "12,14", "--mask-points", "50,2:0"}).status, 0);
  const ServedRequest asked = server_.requests().at(0);
  EXPECT_EQ(asked.target, "/predict/mask");
  EXPECT_THAT(asked.body, HasSubstr("[1,0]"));
  const Finished outside = mask({"--mask-points", "64,0"});
  EXPECT_EQ(outside.status, 2);
  EXPECT_THAT(outside.err, HasSubstr("outside the image"));
}

TEST_F(CliMaskService, AServiceThatIsNotThereIsAnError) {
  const Finished absent =
      flux2({"mask", "image.png", "-o", "none.png", "--mask-text", "a car", "--mask-service", "http://127.0.0.1:1"});
  EXPECT_NE(absent.status, 0);
  EXPECT_THAT(absent.err, HasSubstr("--mask-text: the mask service cannot be used"));
  EXPECT_FALSE(exists("none.png"));
  reply_.status = 500;
  EXPECT_THAT(mask({"--mask-text", "a car"}).err, HasSubstr("the mask service failed"));
}

}  // namespace
}  // namespace flux2::test
