#include "text/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"

namespace flux2 {
namespace {

const std::vector<std::string> kTexts = {
    "a red circle on a blue background",
    "a large yellow star at the top left on a black background",
    "three green squares on a white background with gray dots",
    "Make the circle blue.",
    "it's the cat's hat, isn't it? aaaa aaaaa banana bananas",
    "remove the star",
    "put the cat of image 2 into image 1 at the top right",
    "a café in the evening — über alles",
    "a panda to the left of a purple heart on a gradient background from red down to blue",
};

// What tokenizers 0.23 learns from the same texts: BpeTrainer(vocab_size=340, initial_alphabet=ByteLevel.alphabet()) behind NFC,
// the split of Qwen and ByteLevel. One merge on each line.
constexpr const char* kMerges = R"(Ġ t
Ġ a
Ġ b
h e
Ġt he
g r
l e
Ġ i
Ġ o
Ġb a
a a
a r
c k
n d
Ġ c
n a
o u
r e
Ġt o
Ġb l
gr ou
Ġo n
Ġba ck
grou nd
Ġback ground
a t
e n
g e
i t
u e
Ġ s
Ġ gr
Ġbl ue
' s
a ge
c le
d o
f t
i r
m age
p u
t ar
Ġ w
Ġ le
Ġ re
Ġ do
Ġa t
Ġa aa
Ġi n
Ġi mage
Ġo f
Ġba na
Ġc at
Ġc ir
Ġto p
Ġs tar
Ġgr a
Ġle ft
Ġre d
Ġbana na
Ġcir cle
' t
M a
a f
a ck
a nd
b e
d i
e l
e s
e v
e en
f r
g h
h re
h at
h it
i n
i gh
k e
l o
l le
l ar
m o)";

TEST(LearnBpe, GivesTheMergesOfTokenizers) {
  const LearntBpe learnt = learn_bpe(kTexts, 340);
  std::istringstream expected(kMerges);
  size_t i = 0;
  for (std::string left, right; expected >> left >> right; ++i) {
    ASSERT_LT(i, learnt.merges.size());
    EXPECT_EQ(learnt.merges[i], std::pair(left, right)) << "merge " << i;
  }
  EXPECT_EQ(learnt.merges.size(), i);
  ASSERT_EQ(learnt.vocabulary.size(), 340u);
  EXPECT_EQ(learnt.vocabulary[0], "!");
  EXPECT_EQ(learnt.vocabulary[255], "Ń");
  EXPECT_EQ(learnt.vocabulary.back(), "mo");
}

TEST(LearnBpe, EndsWhenNoPairIsLeft) {
  const LearntBpe learnt = learn_bpe({"ab ab"}, 1000);
  EXPECT_EQ(learnt.vocabulary.size(), 258u);  // "ab", "Ġab"
  EXPECT_EQ(learn_bpe({}, 300).vocabulary.size(), 256u);
  EXPECT_THROW(learn_bpe(kTexts, 256), Error);
}

TEST(Words, AreLowerCaseWithoutPunctuation) {
  EXPECT_THAT(words_in({"A red circle.", "a medium-sized Circle, red"}),
              testing::ElementsAre("a", "circle", "medium-sized", "red"));
  EXPECT_THAT(words_of_text("Draw a cat!"), testing::ElementsAre("draw", "a", "cat"));
}

}  // namespace
}  // namespace flux2
