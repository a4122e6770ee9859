#include "backend/cuda/matmul_plans.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

namespace flux2 {

namespace {

namespace fs = std::filesystem;

class MatmulPlansTest : public testing::Test {
 protected:
  MatmulPlansTest() {
    std::string pattern = (fs::temp_directory_path() / "plansXXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~MatmulPlansTest() override { fs::remove_all(folder); }

  static cublasLtMatmulAlgo_t algorithm(uint64_t first) {
    cublasLtMatmulAlgo_t a{};
    for (uint64_t& word : a.data) word = first++ * 0x9e3779b97f4a7c15ull;
    return a;
  }

  fs::path folder;
};

TEST_F(MatmulPlansTest, PersistBetweenRunsOnTheSameMachine) {
  MatmulPlans first({folder}, "NVIDIA H200"), second({folder}, "NVIDIA H200");
  first.remember("a product", algorithm(1));
  second.remember("another", algorithm(100));  // keeps what the first has written meanwhile
  const MatmulPlans later({folder}, "NVIDIA H200");
  for (const auto& [name, seed] : {std::pair{"a product", 1}, {"another", 100}}) {
    const auto found = later.find(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(std::memcmp(&*found, algorithm(static_cast<uint64_t>(seed)).data, sizeof(*found)), 0) << name;
  }
  EXPECT_FALSE(later.find("a third"));
  EXPECT_FALSE(MatmulPlans({folder}, "NVIDIA H100").find("a product"));
}

TEST_F(MatmulPlansTest, IgnoresADamagedFile) {
  MatmulPlans({folder}, "GPU").remember("a product", algorithm(1));
  for (const auto& entry : fs::directory_iterator(folder))
    for (const char* text : {"", "{", "[]", "{\"plans\": {\"a product\": 3}}", "{\"plans\": {\"a product\": \"12xy\"}}"}) {
      std::ofstream(entry.path()) << text;
      EXPECT_FALSE(MatmulPlans({folder}, "GPU").find("a product")) << text;
    }
}

TEST_F(MatmulPlansTest, WithoutAFolderNothingIsTimed) {
  EXPECT_FALSE(MatmulPlans({}, "GPU").active());
  EXPECT_TRUE(MatmulPlans(folder, "GPU").active());
}

}  // namespace

}  // namespace flux2
