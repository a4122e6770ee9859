#include "train/ranks/device_sums.h"

#include <gmock/gmock.h>

#include <thread>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "train/ranks/tcp_socket.h"

namespace flux2 {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sums through the group, as a GPU's library would do it by itself.
class FakeSums final : public StreamCommunicator {
 public:
  explicit FakeSums(ProcessGroup& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void all_reduce(const Tensor& x) override { all_reduce(std::span(&x, 1)); }
  void all_reduce(std::span<const Tensor> tensors) override {
    for (const Tensor& x : tensors) group_.all_reduce(x);
    ++operations;
  }
  void wait() override {}
  std::string name() const override { return "fake"; }

  int operations = 0;

 private:
  ProcessGroup& group_;
};

// Runs `body` as every rank, each on a thread, and returns what it returned or the text of its error.
std::vector<std::string> on_ranks(int size, const std::function<std::string(ProcessGroup&)>& body) {
  const int port = listen_at("127.0.0.1", 0).local_port();
  std::vector<std::string> results(static_cast<size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      RankPlace place;
      place.rank = place.local_rank = rank;
      place.size = size;
      place.port = port;
      std::string& result = results[static_cast<size_t>(rank)];
      try {
        const auto group = ProcessGroup::join(place, {.join_timeout_s = 20});
        result = body(*group);
      } catch (const std::exception& e) {
        result = std::string("error: ") + e.what();
      }
    });
  threads.clear();
  return results;
}

DeviceSumsOffer good_offer(ProcessGroup& group) {
  return {
      .problem = {}, .device_id = "gpu " + std::to_string(group.rank()), .open = [&](const StreamCommunicatorOptions& options) {
        std::byte id{static_cast<unsigned char>(options.rank + 7)};
        if (options.size > 1) options.share(std::span(&id, 1));
        EXPECT_EQ(id, std::byte{7}) << "every rank has the id of rank 0";
        options.check_ranks();
        return std::make_shared<FakeSums>(group);
      }};
}

std::string outcome(const DeviceSums& sums) {
  EXPECT_NE(sums.communicator == nullptr, sums.problem.empty());
  return sums.communicator ? sums.communicator->name() : sums.problem;
}

TEST(DeviceSums, OpenIfEveryRankHasADeviceOfItsOwn) {
  for (const int size : {1, 2, 3})
    EXPECT_THAT(on_ranks(size, [](ProcessGroup& group) { return outcome(open_device_sums(group, good_offer(group), 5)); }),
                Each("fake"));
}

TEST(DeviceSums, AllRanksKnowThatOneCannot) {
  const auto results = on_ranks(3, [](ProcessGroup& group) {
    DeviceSumsOffer offer = good_offer(group);
    if (group.rank() == 1) offer.problem = "its device is a CPU";
    return outcome(open_device_sums(group, offer, 5));
  });
  EXPECT_THAT(results, Each("rank 1: its device is a CPU"));
}

TEST(DeviceSums, AllRanksKnowThatTwoShareADevice) {
  const auto results = on_ranks(3, [](ProcessGroup& group) {
    DeviceSumsOffer offer = good_offer(group);
    if (group.rank() == 2) offer.device_id = "gpu 0";
    return outcome(open_device_sums(group, offer, 5));
  });
  EXPECT_THAT(results, Each("ranks 0 and 2 share one GPU"));
}

TEST(DeviceSums, AllRanksKnowThatOneFailedToOpen) {
  const auto results = on_ranks(2, [](ProcessGroup& group) {
    DeviceSumsOffer offer = good_offer(group);
    if (group.rank() == 1)
      offer.open = [](const StreamCommunicatorOptions& options) -> std::shared_ptr<StreamCommunicator> {
        std::byte id{};
        options.share(std::span(&id, 1));
        fail(ErrorCode::Device, "{}", "no route: " + std::string(1000, 'x'));
      };
    return outcome(open_device_sums(group, offer, 5));
  });
  EXPECT_THAT(results, Each(HasSubstr("rank 1: no route: xxx")));
}

TEST(DeviceSums, ARankThatEndedIsNoReasonToGoOnWithSockets) {
  const auto results = on_ranks(1, [](ProcessGroup& group) {
    DeviceSumsOffer offer = good_offer(group);
    offer.open = [](const StreamCommunicatorOptions&) -> std::shared_ptr<StreamCommunicator> {
      fail(ErrorCode::Network, "rank 1 has ended");
    };
    return outcome(open_device_sums(group, offer, 5));
  });
  EXPECT_THAT(results, ElementsAre("error: rank 1 has ended"));
}

TEST(DeviceSums, GradientsAreSummedAndMissingOnesCountAsZero) {
  const auto results = on_ranks(3, [](ProcessGroup& group) {
    const auto stream = open_cpu({.threads = 1})->open_stream();
    FakeSums sums(group);
    const auto tensor = [&](const Shape& shape, float value, DType dtype = DType::F32) {
      return Tensor::from(*stream, dtype, shape,
                          std::span<const float>(std::vector<float>(static_cast<size_t>(shape.numel()), value)));
    };
    const float own = static_cast<float>(group.rank() + 1);
    const std::vector<Shape> shapes = {{2, 3}, {4}, {2}, {2, 2}, {2}};
    std::vector<Tensor> gradients(5);
    gradients[0] = tensor({2, 3}, own);
    if (group.rank() == 1) gradients[1] = tensor({4}, 5);  // the others had no batch
    gradients[2] = tensor({2}, own, DType::BF16);
    gradients[3] = tensor({2, 4}, own).narrowed(1, 1, 2);  // not contiguous
    gradients[4] = gradients[2];                           // the same memory
    sum_on_device(sums, *stream, shapes, gradients);
    std::string text = std::to_string(sums.operations);
    for (const Tensor& g : gradients) {
      EXPECT_EQ(g.dtype(), DType::F32);
      for (const float v : g.to_floats()) text += fmt::format(" {}", v);
    }
    return text;
  });
  EXPECT_THAT(results, Each("1 6 6 6 6 6 6 5 5 5 5 6 6 6 6 6 6 6 6"));
}

TEST(DeviceSums, OneRankKeepsItsGradientsAsTheyAre) {
  const auto results = on_ranks(1, [](ProcessGroup& group) {
    const auto stream = open_cpu({.threads = 1})->open_stream();
    FakeSums sums(group);
    std::vector<Tensor> gradients(2);
    gradients[1] = Tensor::empty(*stream, DType::F32, {2});
    gradients[1].fill(3);
    sum_on_device(sums, *stream, std::vector<Shape>{{5}, {2}}, gradients);
    return fmt::format("{} {}", gradients[0].defined(), gradients[1].to_floats()[1]);
  });
  EXPECT_THAT(results, ElementsAre("false 3"));
}

}  // namespace
}  // namespace flux2
