#include "pipeline/canvas.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_device.h"
#include "pipeline/request.h"
#include "pipeline/session.h"

namespace flux2 {
namespace {

TEST(Strength, RunsTheLastSteps) {
  const std::vector<float> four = {1.0f, 0.9f, 0.7f, 0.4f, 0.0f};
  EXPECT_EQ(sigmas_for_strength(four, 1.0), four);
  EXPECT_EQ(sigmas_for_strength(four, 0.8), four);  // 0.8 of four steps are four, as in diffusers
  EXPECT_EQ(sigmas_for_strength(four, 0.75), (std::vector<float>{0.9f, 0.7f, 0.4f, 0.0f}));
  EXPECT_EQ(sigmas_for_strength(four, 0.5), (std::vector<float>{0.7f, 0.4f, 0.0f}));
  EXPECT_EQ(sigmas_for_strength(four, 0.01), (std::vector<float>{0.4f, 0.0f}));
  EXPECT_EQ(sigmas_for_strength(four, 0.0), (std::vector<float>{0.4f, 0.0f}));
}

TEST(CanvasBlend, KeepsWhereTheMaskIsZero) {
  Session session;
  session.stream = open_cpu()->open_stream();
  Request request;
  request.width = 32, request.height = 16;
  request.canvas = Canvas{.mask = {0.0f, 0.25f}};
  const auto tokens = [&](int64_t pictures, float value) {
    const Tensor t = Tensor::empty(*session.stream, DType::F32, {pictures, 2, 128});
    t.fill(static_cast<double>(value));
    return t;
  };
  const CanvasBlend blend(session, request, tokens(1, 3.0f), tokens(2, 1.0f));
  EXPECT_EQ(blend.noised(0.0f).to_floats(), std::vector<float>(2 * 2 * 128, 3.0f));
  EXPECT_EQ(blend.noised(0.5f).to_floats(), std::vector<float>(2 * 2 * 128, 2.0f));
  const auto kept = blend.kept(tokens(2, 10.0f), 0.5f).to_floats();
  EXPECT_EQ(kept[0], 2.0f);    // 0 · 10 + 1 · 2
  EXPECT_EQ(kept[128], 4.0f);  // ¼ · 10 + ¾ · 2
  EXPECT_EQ(kept[3 * 128], 4.0f);
}

}  // namespace
}  // namespace flux2
