#include "backend/cuda/nccl_communicator.h"

#include <gmock/gmock.h>

#include "backend/cuda/cuda_test.h"
#include "base/error.h"

namespace flux2 {
namespace {

// One rank on one GPU: every sum is the tensor itself, so that all calls are exercised and the result is known.
class NcclTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (const std::string problem = nccl_problem(); !problem.empty()) GTEST_SKIP() << problem;
  }
  std::shared_ptr<StreamCommunicator> alone() { return open_nccl(stream, {}); }
};

TEST_F(NcclTest, KnowsItsPlaceAndVersion) {
  const auto ranks = alone();
  EXPECT_EQ(ranks->rank(), 0);
  EXPECT_EQ(ranks->size(), 1);
  EXPECT_THAT(ranks->name(), testing::MatchesRegex("NCCL 2\\.[0-9]+\\.[0-9]+"));
}

TEST_F(NcclTest, ASumOverOneRankIsTheTensorItself) {
  const auto ranks = alone();
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Tensor x = random({33, 129}, dtype);
    const std::vector<float> before = x.to_floats();
    ranks->all_reduce(x);
    ranks->wait();
    EXPECT_EQ(x.to_floats(), before) << name_of(dtype);
  }
}

TEST_F(NcclTest, ManyTensorsAreSummedAsOneOperation) {
  const auto ranks = alone();
  std::vector<Tensor> tensors;
  std::vector<std::vector<float>> before;
  for (int64_t i = 0; i < 400; ++i) {
    const DType dtype = i % 3 == 0 ? DType::BF16 : DType::F32;
    tensors.push_back(i == 200 ? Tensor::empty(*stream, DType::F32, {0, 7}) : random({1 + i % 17, 64 + i}, dtype));
    before.push_back(tensors.back().to_floats());
  }
  for (int round = 0; round < 3; ++round) ranks->all_reduce(tensors);
  ranks->wait();
  for (size_t i = 0; i < tensors.size(); ++i) ASSERT_EQ(tensors[i].to_floats(), before[i]) << i;
  ranks->all_reduce(std::span<const Tensor>());  // nothing at all is fine too
  ranks->wait();
}

TEST_F(NcclTest, SumsAreOrderedWithTheWorkAroundThem) {
  const auto ranks = alone();
  const Tensor x = Tensor::empty(*stream, DType::F32, {1 << 20});
  x.fill(1);
  for (int i = 0; i < 8; ++i) {
    kernels().binary({Binary::Add, x, x, x});
    ranks->all_reduce(x);
  }
  const std::vector<float> values = x.to_floats();
  EXPECT_EQ(values.front(), 256);
  EXPECT_EQ(values.back(), 256);
}

TEST_F(NcclTest, ASumCanBePartOfACapturedGraph) {
  const auto ranks = alone();
  const Tensor x = random({1000}, DType::F32), y = Tensor::like(x);
  const auto graph = stream->capture([&] {
    kernels().binary({Binary::Add, x, x, y});
    ranks->all_reduce(y);
  });
  x.fill(3);
  graph->replay();
  stream->wait();
  EXPECT_EQ(y.to_floats(), std::vector<float>(1000, 6.0f));
}

TEST_F(NcclTest, SeveralCommunicatorsMayFollowAndLiveBesideOneAnother) {
  const auto first = alone();
  for (int i = 0; i < 3; ++i) {
    const auto other = alone();
    const Tensor x = random({10}, DType::F32);
    const std::vector<float> before = x.to_floats();
    first->all_reduce(x);
    other->all_reduce(x);
    EXPECT_EQ(x.to_floats(), before);
  }
}

TEST_F(NcclTest, WhatItCannotAddIsRefused) {
  const auto ranks = alone();
  EXPECT_THROW(ranks->all_reduce(ints({2}, {1, 2})), Error);
  EXPECT_THROW(ranks->all_reduce(random({4, 4}, DType::F32).narrowed(1, 0, 2)), Error);
  const auto another = device->open_stream();
  EXPECT_THROW(ranks->all_reduce(Tensor::empty(*another, DType::F32, {4})), Error);
  EXPECT_THROW(open_nccl(stream, {.rank = 1, .size = 1}), Error);
}

// Rank 0 of two, whose other rank never comes.
TEST_F(NcclTest, ARankThatWaitsNoticesThatAnotherHasEnded) {
  int asked = 0;
  const auto open = [&](double seconds, bool ends) {
    open_nccl(stream, {.rank = 0,
                       .size = 2,
                       .share = [](std::span<std::byte>) {},
                       .check_ranks =
                           [&asked, ends] {
                             ++asked;
                             if (ends) fail(ErrorCode::Network, "rank 1 has ended");
                           },
                       .open_timeout_s = seconds});
  };
  const auto message = [&](double seconds, bool ends) -> std::string {
    try {
      open(seconds, ends);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(60, true), "rank 1 has ended");
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(message(1, false), "connecting the GPU of rank 0 of 2: the other ranks did not take part within 1 seconds");
  EXPECT_GT(asked, 3);
  const Tensor x = random({8}, DType::F32);  // the stream still works
  EXPECT_EQ(x.to_floats().size(), 8U);
}

}  // namespace
}  // namespace flux2
