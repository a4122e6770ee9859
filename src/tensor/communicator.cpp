#include "tensor/communicator.h"

#include <barrier>

#include "tensor/tensor.h"

namespace flux2 {

namespace {

struct Group {
  explicit Group(int size) : meet(size), offered(static_cast<size_t>(size)) {}
  std::barrier<> meet;
  std::vector<Tensor> offered;
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->offered.size()); }

  void all_reduce(const Tensor& x) override {
    require(x.device().is_host(), "threads of one process can only reduce host tensors");
    x.stream().wait();
    group_->offered[static_cast<size_t>(rank_)] = x;
    group_->meet.arrive_and_wait();
    Tensor sum = group_->offered[0].to(x.stream()).cloned();
    for (size_t r = 1; r < group_->offered.size(); ++r) x.device().kernels().binary({Binary::Add, sum, group_->offered[r], sum});
    group_->meet.arrive_and_wait();  // everyone has read everything
    x.copy_from(sum);
    group_->offered[static_cast<size_t>(rank_)] = Tensor();
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> local_communicators(int size) {
  auto group = std::make_shared<Group>(size);
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_shared<LocalCommunicator>(group, r));
  return ranks;
}

}  // namespace flux2
