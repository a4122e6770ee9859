// Several models in memory: which stay, and which make room.
#include "app/model_keeper.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "app/model_choice.h"
#include "engine/forecast.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class KeepModels : public testing::Test {
 protected:
  KeepModels() {
    fs::create_directories(folder_);
    context_.environment = [this](const char* name) -> const char* {
      const std::string_view wanted(name);
      return wanted == "FLUX2_HOME" ? home_.c_str() : wanted == "FLUX2_BUNDLED" ? bundled_.c_str() : nullptr;
    };
    spec_.prompt = "a red circle";
    spec_.seed = 7;
    spec_.steps = 1;
    spec_.device = "cpu";
    model_ = choose_model(spec_, context_);
  }
  ~KeepModels() override { fs::remove_all(folder_); }

  // The same model from another folder: to the keeper it is another one.
  ModelFiles copy(const std::string& name) {
    ModelFiles files = model_;
    files.id = name;
    const fs::path target = folder_ / name;
    fs::create_directories(target);
    files.transformer = target / model_.transformer.filename();
    fs::copy(model_.transformer, files.transformer, fs::copy_options::recursive | fs::copy_options::skip_existing);
    return files;
  }
  PictureMaker& use(ModelKeeper& keeper, const ModelFiles& files) {
    const ResolvedRequest request = resolve(spec_, files);
    return keeper.maker_for(spec_, files, {&request, 1});
  }
  static std::vector<std::string> names(const ModelKeeper& keeper) {
    std::vector<std::string> list;
    for (const PictureMaker* maker : keeper.makers()) list.push_back(maker->files().id);
    return list;
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("keeper-" + std::to_string(::getpid()));
  std::string home_ = (folder_ / "home").string(), bundled_ = test::pico_folder();
  AppContext context_;
  RequestSpec spec_;
  ModelFiles model_;
};

using Names = std::vector<std::string>;

TEST_F(KeepModels, TheOneUsedLongestAgoMakesRoom) {
  ModelKeeper keeper(context_, 2);
  const ModelFiles a = copy("a"), b = copy("b"), c = copy("c");
  const PictureMaker* first = &use(keeper, a);
  use(keeper, b);
  EXPECT_EQ(names(keeper), (Names{"a", "b"}));
  EXPECT_EQ(&use(keeper, a), first) << "still there";
  EXPECT_EQ(keeper.maker(), first);
  use(keeper, c);
  EXPECT_EQ(names(keeper), (Names{"a", "c"}));
  EXPECT_EQ(keeper.evicted(), 1);
  EXPECT_TRUE(keeper.has(spec_, a));
  EXPECT_FALSE(keeper.has(spec_, b));
  keeper.drop_file(a.transformer);
  EXPECT_EQ(names(keeper), Names{"c"});
  keeper.drop();
  EXPECT_EQ(keeper.maker(), nullptr);
}

TEST_F(KeepModels, OneIsKeptUnlessMoreAreAskedFor) {
  ModelKeeper keeper(context_);
  use(keeper, copy("a"));
  use(keeper, copy("b"));
  EXPECT_EQ(names(keeper), Names{"b"});
}

TEST_F(KeepModels, AMemoryLimitIsOneOfAllModelsTogether) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the limit is one of the whole process, and the sanitizer keeps freed memory: the first model still counts";
#endif
  const ModelFiles a = copy("a"), b = copy("b");
  spec_.max_ram = 4;
  {
    ModelKeeper keeper(context_, 4);
    use(keeper, a), use(keeper, b);
    EXPECT_EQ(names(keeper), (Names{"a", "b"})) << "there is room for both";
  }
  int64_t held = 0, smallest = 0;
  {
    ModelKeeper keeper(context_);
    held = use(keeper, a).held_bytes();
    const ResolvedRequest request = resolve(spec_, a);
    smallest = forecast_memory(Engine(engine_options(spec_, context_)), a, request.request).placement.smallest;
  }
  ASSERT_GT(held, int64_t{1} << 20);
  // Enough for one of them, also if the process has grown a little meanwhile, but not for both.
  const int64_t for_one = smallest + held * 3 / 4;
  spec_.max_ram = static_cast<double>(for_one) / (1 << 30);
  ModelKeeper keeper(context_, 4);
  use(keeper, a), use(keeper, b);
  EXPECT_EQ(names(keeper), Names{"b"});
  EXPECT_EQ(keeper.evicted(), 1);
}

TEST_F(KeepModels, ALargerRequestTakesThePlaceOfAnotherModel) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the limit is one of the whole process, and the sanitizer keeps freed memory: the first model still counts";
#endif
  const ModelFiles a = copy("a"), b = copy("b");
  spec_.max_ram = 64;
  spec_.vae_tile = "off";  // a large image could be decoded in tiles instead
  const auto use_size = [&](ModelKeeper& keeper, const ModelFiles& files, int64_t side) -> PictureMaker& {
    spec_.width = spec_.height = side;
    return use(keeper, files);
  };
  const auto smallest = [&](int64_t side) {
    spec_.width = spec_.height = side;
    const ResolvedRequest request = resolve(spec_, a);
    return forecast_memory(Engine(engine_options(spec_, context_)), a, request.request).placement.smallest;
  };
  int64_t held = 0, small = 0, large = 0;
  {
    ModelKeeper keeper(context_, 2);  // with both, because the process keeps what it has used once
    held = use_size(keeper, a, 64).held_bytes();
    use_size(keeper, b, 64);
    small = smallest(64), large = smallest(1024);
  }
  ASSERT_GT(large, small + held);
  // Beside the other model there is room for small images, and alone for large ones.
  const int64_t for_large = large + held / 2;
  spec_.max_ram = static_cast<double>(for_large) / (1 << 30);
  ModelKeeper keeper(context_, 4);
  use_size(keeper, a, 64), use_size(keeper, b, 64);
  ASSERT_EQ(names(keeper), (Names{"a", "b"}));
  PictureMaker& maker = use_size(keeper, b, 1024);
  EXPECT_EQ(names(keeper), Names{"b"});
  EXPECT_EQ(keeper.evicted(), 1);
  EXPECT_TRUE(maker.is_loaded());
  EXPECT_GE(maker.session().model->placement.peak, small);
  EXPECT_TRUE(maker.session().model->placement.fits);
  use_size(keeper, b, 64);
  EXPECT_EQ(keeper.maker(), &maker) << "it stays for smaller ones";
}

TEST_F(KeepModels, LaterRequestsKeepToAMemoryLimitToo) {
  spec_.max_ram = 64;
  ModelKeeper keeper(context_);
  keeper.maker_for(spec_, model_, {});  // as a server does before its first job
  const auto loaded = [&] { return keeper.maker()->session().model; };
  const auto sized = [&](int64_t side) {
    spec_.width = spec_.height = side;
    return &use(keeper, model_);
  };
  const PictureMaker* const maker = sized(128);
  const auto first = loaded();
  EXPECT_EQ(sized(512), maker);
  const auto second = loaded();
  EXPECT_GT(second->placement.peak, first->placement.peak);
  sized(128);
  EXPECT_EQ(loaded(), second) << "there is more room than needed";
}

// Those of a job that was cancelled are not encoded in the job after it.
TEST_F(KeepModels, OnlyThePromptsOfTheNextJobAreEncodedAhead) {
  spec_.quant = "int8";  // so the text encoder is worth using for several prompts at a time
  ModelKeeper keeper(context_);
  const auto ask = [&](const std::vector<std::string>& prompts) {
    std::vector<ResolvedRequest> requests;
    for (const std::string& prompt : prompts) {
      spec_.prompt = prompt;
      requests.push_back(resolve(spec_, model_));
    }
    return requests;
  };
  const auto cancelled = ask({"a circle", "a square"}), next = ask({"a star", "a cross"});
  Session& session = keeper.maker_for(spec_, model_, cancelled).session();
  for (const char* prompt : {"a circle", "a square"})
    EXPECT_EQ(std::count(session.prompts_ahead.begin(), session.prompts_ahead.end(), prompt), 1) << prompt;

  PictureMaker& maker = keeper.maker_for(spec_, model_, next);
  ASSERT_EQ(&maker.session(), &session) << "the model stays";
  int made = 0;
  maker.make(next[0], [&](const Picture&, const GenerationRecord&) { ++made; });
  EXPECT_EQ(made, 1);
  EXPECT_TRUE(session.prompt_cache.contains("a star"));
  EXPECT_TRUE(session.prompt_cache.contains("a cross")) << "of the same job, so it was encoded together with the first";
  EXPECT_FALSE(session.prompt_cache.contains("a circle"));
  EXPECT_FALSE(session.prompt_cache.contains("a square"));
}

TEST_F(KeepModels, AModelWithoutRoomTakesThePlaceOfOthers) {
  const ModelFiles a = copy("a"), b = copy("b");
  ModelKeeper keeper(context_, 4);
  use(keeper, a);
  const int64_t held = keeper.maker()->held_bytes();
  ASSERT_GT(held, int64_t{1} << 20);
  // The other one's share of a limit of this size is used up by the first.
  spec_.max_ram = 0.9 * static_cast<double>(held) / (1 << 30);
  const ResolvedRequest request = resolve(spec_, b);
  EXPECT_THROW(keeper.maker_for(spec_, b, {&request, 1}), Error) << "too little even alone";
  EXPECT_TRUE(names(keeper).empty()) << "everything made room before that was said";
}

}  // namespace
}  // namespace flux2
