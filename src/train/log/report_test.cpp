#include "train/log/report.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "image/write_image.h"
#include "train/log/html_text.h"
#include "train/log/svg_chart.h"
#include "train/log/test_folder.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

Image gradient_image(int width, int height, int phase) {
  Image image(width, height, 3);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      image.at(x, y)[0] = static_cast<uint8_t>(255 * x / width);
      image.at(x, y)[1] = static_cast<uint8_t>(255 * y / height);
      image.at(x, y)[2] = static_cast<uint8_t>(phase);
    }
  return image;
}

// A run of 400 steps with everything that a log can contain.
void write_example_log(const fs::path& folder) {
  std::ofstream out(folder / "cat.jsonl");
  Json options = {{"learning_rate", 1e-4},
                  {"network_dim", 32},
                  {"optimizer_type", "adamw8bit"},
                  {"training_comment", "<script>alert(1)</script>"}};
  out << Json{{"event", "start"},
              {"time", 1763266747.0},
              {"name", "cat & dog"},
              {"model", "flux_2_klein_4b"},
              {"modules", 80},
              {"parameters", 46202880},
              {"items", 12},
              {"batches_per_epoch", 40},
              {"epochs", 10},
              {"steps", 400},
              {"device", "NVIDIA H200"},
              {"program", "flux2"},
              {"options", options}}
             .dump()
      << '\n';
  for (int step = 1; step <= 400; ++step) {
    const double x = step, noise = std::sin(x * 12.9898) * 0.12, loss = 0.35 + 0.4 * std::exp(-x / 120) + noise;
    Json line = {{"event", "step"},
                 {"time", 1763266747.0 + x},
                 {"step", step},
                 {"epoch", (step - 1) / 40 + 1},
                 {"loss", step == 200 ? Json() : Json(loss)},
                 {"loss_avg", 0.35 + 0.4 * std::exp(-x / 150)},
                 {"lr", {{"unet", 1e-4 * (1 - x / 500)}, {"unet plus", 4e-4 * (1 - x / 500)}}},
                 {"grad_norm", 0.5 + std::abs(noise) * 4 + (step == 77 ? 50 : 0)},
                 {"it_per_s", 4.5 + noise},
                 {"tokens_per_s", 20000 + 4000 * noise},
                 {"device_gib", 11.2},
                 {"host_gib", 3.1},
                 {"elapsed_s", x * 0.22}};
    line["loss_by_t"][fmt::format("{:02}", step % 10 * 10)] = loss + 0.02 * (step % 10);
    out << line.dump() << '\n';
    if (step % 50 == 0) {
      out << Json{{"event", "validation"},
                  {"step", step},
                  {"loss", 0.3 + 0.3 * std::exp(-x / 200)},
                  {"by_t", {{"0.1", 0.5 + 20 / x}, {"0.5", 0.3 + 10 / x}, {"0.9", 0.2 + 5 / x}}}}
                 .dump()
          << '\n';
      for (int index = 0; index < 2; ++index) {
        const std::string file = fmt::format("sample/cat_{:06}_{:02}.png", step, index);
        save_image(folder / file, encode_png(gradient_image(index == 0 ? 512 : 96, index == 0 ? 384 : 96, step / 2)));
        out << Json{{"event", "sample"}, {"step", step}, {"epoch", step / 40},
                    {"index", index},    {"file", file}, {"prompt", index == 0 ? "a <b>cat</b> on a \"sofa\"" : "a dog"},
                    {"seed", 42}}
                   .dump()
            << '\n';
      }
      out << Json{{"event", "checkpoint"},
                  {"step", step},
                  {"epoch", step / 40},
                  {"file", fmt::format("cat-step{:08}.safetensors", step)},
                  {"sha256", std::string(64, 'a')},
                  {"bytes", 92'000'000}}
                 .dump()
          << '\n';
    }
  }
  out << R"({"event":"removed","step":100,"file":"cat-step00000050.safetensors"})" << '\n';
  out << R"({"event":"state","step":400,"epoch":10,"folder":"cat-state"})" << '\n';
  out << R"({"event":"warning","step":77,"text":"gradient norm 50 <is large>"})" << '\n';
  out << R"({"event":"sample","step":400,"index":7,"file":"../../secret.png","prompt":"outside"})" << '\n';
  out << R"({"event":"end","reason":"done","step":400,"elapsed_s":88.5})" << '\n';
}

TEST(Report, ShowsTheWholeRun) {
  const TestFolder folder;
  write_example_log(folder.path());
  write_report(folder / "cat.jsonl", folder / "report.html");
  const std::string page = read_text_file(folder / "report.html");
  for (const char* part : {"<h1>cat &amp; dog</h1>",
                           "finished",
                           "400 / 400",
                           "Loss</figcaption>",
                           "Loss by timestep",
                           "Validation loss by timestep",
                           "Learning rate",
                           "unet plus",
                           "Gradient norm",
                           "Steps per second",
                           "Tokens per second",
                           "Memory, GiB",
                           "Samples",
                           "Warnings",
                           "Checkpoints",
                           "States",
                           "Settings",
                           "prefers-color-scheme:dark",
                           "width=device-width",
                           "NVIDIA H200"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_EQ(count_of(page, "data:image/jpeg;base64,"), 8u) << "large images are scaled down";
  EXPECT_EQ(count_of(page, "data:image/png;base64,"), 8u) << "small ones are exact";
  EXPECT_EQ(count_of(page, R"(class="removed")"), 1u);
  EXPECT_LT(page.size(), 1'000'000u);
}

TEST(Report, ForeignTextStaysText) {
  const TestFolder folder;
  write_example_log(folder.path());
  const std::string page = report_html(read_history(folder / "cat.jsonl"), folder.path());
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(page, HasSubstr("a &lt;b&gt;cat&lt;/b&gt; on a &quot;sofa&quot;"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("outside this folder"));
  EXPECT_EQ(page.find("http://"), page.npos);
  EXPECT_EQ(page.find("https://"), page.npos);
  EXPECT_EQ(html_text("\x1b[31m'\xe2\x80\xae"), "\\u001b[31m&#39;\\u202e");
}

TEST(Report, OddNumbersDoNotBreakCharts) {
  const auto chart = [](std::vector<double> values) {
    ChartSeries s;
    for (size_t i = 0; i < values.size(); ++i) s.points.emplace_back(static_cast<double>(i), values[i]);
    return svg_chart({.title = "x", .series = {s}});
  };
  EXPECT_EQ(chart({}), "");
  EXPECT_EQ(chart({std::nan(""), HUGE_VAL, 1e300}), "");
  for (const auto& values : std::vector<std::vector<double>>{
           {1}, {1, 1}, {0, 0, 0}, {-1, 5}, {1e17, 1e17 + 16}, {1e-300, 2e-300}, {1, std::nan(""), 3, 1e300}}) {
    const std::string svg = chart(values);
    EXPECT_THAT(svg, HasSubstr("<svg"));
    EXPECT_EQ(svg.find("nan"), svg.npos) << svg;
    EXPECT_EQ(svg.find("inf"), svg.npos) << svg;
  }
  ChartSeries many;
  for (int i = 0; i < 1'000'000; ++i) many.points.emplace_back(i, i == 500'000 ? 9.0 : std::sin(i));
  EXPECT_LT(svg_chart({.title = "x", .series = {many}}).size(), 60'000u);
  EXPECT_EQ(svg_bars({.title = "x", .series = {"a"}, .groups = {{"0", {std::nan("")}}}}), "");
}

TEST(Report, CanBeMadeOfAlmostNothing) {
  const TestFolder folder;
  std::ofstream(folder / "a.jsonl") << "{\"event\":\"start\"}\n";
  EXPECT_THAT(report_html(read_history(folder / "a.jsonl"), folder.path()), HasSubstr("running, or killed"));
  std::ofstream(folder / "b.jsonl") << "{\"event\":\"step\",\"step\":1,\"loss\":0.5}\n";
  EXPECT_THAT(report_html(read_history(folder / "b.jsonl"), folder.path()), HasSubstr("Loss</figcaption>"));
}

}  // namespace
}  // namespace flux2
