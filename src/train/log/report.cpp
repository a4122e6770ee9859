#include "train/log/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/atomic_file.h"
#include "base/text.h"
#include "train/log/html_text.h"
#include "train/log/report_images.h"
#include "train/log/report_style.h"
#include "train/log/svg_chart.h"

namespace flux2 {

namespace {

using Points = std::vector<std::pair<double, double>>;
using Step = RunHistory::Step;

Points points_of(const RunHistory& history, double Step::*figure) {
  Points points;
  for (const Step& s : history.steps) points.emplace_back(static_cast<double>(s.step), s.*figure);
  return points;
}

// An exponential average over about a fortieth of the run, without the bias of its start.
Points smoothed(const Points& points) {
  const double keep = 1 - 1 / std::max(3.0, static_cast<double>(points.size()) / 40);
  Points smooth;
  double sum = 0, weight = 0;
  for (const auto& [x, y] : points) {
    if (std::isfinite(y)) {
      sum = keep * sum + y;
      weight = keep * weight + 1;
    }
    smooth.emplace_back(x, weight > 0 ? sum / weight : kUnknown);
  }
  return smooth;
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10) return "–";
  const auto s = static_cast<int64_t>(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

std::string count_text(int64_t count) {
  if (count >= 10'000'000) return fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
  if (count >= 100'000) return fmt::format("{:.0f} k", static_cast<double>(count) / 1e3);
  return fmt::format("{}", count);
}

int64_t start_count(const RunHistory& history, const char* key) {
  return history.start.contains(key) && history.start[key].is_number_integer() ? history.start[key].get<int64_t>() : 0;
}

std::string start_text(const RunHistory& history, const char* key) {
  return history.start.contains(key) && history.start[key].is_string() ? history.start[key].get<std::string>() : "";
}

double largest(const RunHistory& history, double Step::*figure) {
  double value = kUnknown;
  for (const Step& s : history.steps) value = std::fmax(value, s.*figure);
  return value;
}

struct StatusText {
  const char* text;
  const char* look;
};

StatusText status_of(const RunHistory& history) {
  const std::string& reason = history.end_reason;
  if (reason == "done") return {"finished", "done"};
  if (reason == "interrupted") return {"interrupted", ""};
  if (reason == "time") return {"stopped at its time limit", ""};
  if (reason == "nan") return {"stopped: the loss is not a number", "bad"};
  if (reason == "error") return {"stopped by an error", "bad"};
  return {"running, or killed", ""};
}

std::string report_head(const RunHistory& history) {
  const std::string name = start_text(history, "name");
  const StatusText status = status_of(history);
  const int64_t done = history.steps.empty() ? 0 : history.steps.back().step, planned = start_count(history, "steps");
  std::string notes;
  for (const std::string& part : {start_text(history, "model"), start_text(history, "device"), start_text(history, "program")})
    if (!part.empty()) notes += (notes.empty() ? "" : " · ") + html_text(part);
  if (history.starts > 1) notes += fmt::format(" · resumed {} times", history.starts - 1);
  std::string head = fmt::format(R"(<header><h1>{}</h1><span class="status {}">{}</span><small>{}</small></header>)",
                                 html_text(name.empty() ? "Training" : name), status.look, status.text, notes);
  if (planned > 0) head += fmt::format(R"(<progress max="{}" value="{}"></progress>)", planned, std::min(done, planned));
  if (!history.end_message.empty()) head += fmt::format("<p>{}</p>", html_text(history.end_message));
  return head;
}

std::string cards(const RunHistory& history) {
  std::string out;
  const auto card = [&](const std::string& value, const std::string& label) {
    out += fmt::format(R"(<div class="card"><b>{}</b><span>{}</span></div>)", value, label);
  };
  const int64_t planned = start_count(history, "steps");
  if (!history.steps.empty()) {
    const Step& last = history.steps.back();
    card(planned > 0 ? fmt::format("{} / {}", last.step, planned) : fmt::format("{}", last.step), "steps");
    card(fmt::format("{}", last.epoch), "epoch");
    card(short_number(last.average), "average loss");
    if (std::isfinite(last.it_per_s) && last.it_per_s > 0)
      card(last.it_per_s >= 1 ? short_number(last.it_per_s) + " it/s" : short_number(1 / last.it_per_s) + " s/it", "speed");
  }
  const auto best = std::min_element(history.validations.begin(), history.validations.end(),
                                     [](const auto& a, const auto& b) { return a.loss < b.loss; });
  if (best != history.validations.end()) card(short_number(best->loss), fmt::format("best validation, step {}", best->step));
  if (std::isfinite(history.elapsed_s)) card(duration_text(history.elapsed_s), "time");
  if (const double gib = largest(history, &Step::device_gib); std::isfinite(gib))
    card(fmt::format("{:.2f} GiB", gib), "device memory, peak");
  if (const int64_t count = start_count(history, "parameters"); count > 0)
    card(count_text(count), fmt::format("parameters in {} modules", start_count(history, "modules")));
  if (const int64_t items = start_count(history, "items"); items > 0) card(fmt::format("{}", items), "images");
  return out.empty() ? "" : R"(<div class="cards">)" + out + "</div>";
}

std::string loss_chart(const RunHistory& history, int width, int height) {
  const Points loss = points_of(history, &Step::loss);
  Chart chart{"Loss", {{"each step", loss, ChartSeries::Look::Faint}, {"smoothed", smoothed(loss)}}, false, true, width, height};
  Points validation;
  for (const auto& v : history.validations) validation.emplace_back(static_cast<double>(v.step), v.loss);
  if (!validation.empty()) chart.series.push_back({"validation", validation, ChartSeries::Look::Dots});
  return svg_chart(chart);
}

std::string validation_chart(const RunHistory& history) {
  Chart chart{.title = "Validation loss by timestep", .series = {}};
  for (const auto& v : history.validations)
    for (const auto& [t, loss] : v.by_t) {
      const std::string label = "t = " + t;
      auto at = std::find_if(chart.series.begin(), chart.series.end(), [&](const auto& s) { return s.label == label; });
      if (at == chart.series.end() && chart.series.size() < 12) at = chart.series.insert(at, ChartSeries{label, {}});
      if (at != chart.series.end()) at->points.emplace_back(static_cast<double>(v.step), loss);
    }
  return svg_chart(chart);
}

// The mean of each bin over the first and the last quarter of the run: where the model has learnt.
std::string timestep_chart(const RunHistory& history) {
  const size_t count = history.steps.size(), quarter = std::max<size_t>(1, count / 4);
  const auto mean = [&](size_t begin, size_t end, size_t bin) {
    double sum = 0;
    int64_t seen = 0;
    for (size_t i = begin; i < end; ++i)
      if (const float loss = history.steps[i].by_t[bin]; std::isfinite(loss)) {
        sum += static_cast<double>(loss);
        ++seen;
      }
    return seen > 0 ? sum / static_cast<double>(seen) : kUnknown;
  };
  if (count < 2) return {};
  BarChart chart{.title = "Loss by timestep", .series = {"first quarter of the run", "last quarter"}, .groups = {}};
  for (size_t bin = 0; bin < kTimestepBins; ++bin)
    chart.groups.push_back(
        {fmt::format("{:.1f}", 0.1 * static_cast<double>(bin)), {mean(0, quarter, bin), mean(count - quarter, count, bin)}});
  return svg_bars(chart);
}

std::string rate_chart(const RunHistory& history) {
  Chart chart{.title = "Learning rate", .series = {}, .from_zero = true};
  for (const Step& s : history.steps)
    for (size_t i = 0; i < std::min<size_t>(s.lr.size(), 6); ++i) {
      if (i == chart.series.size()) chart.series.push_back({s.lr[i].first, {}});
      chart.series[i].points.emplace_back(static_cast<double>(s.step), s.lr[i].second);
    }
  if (chart.series.size() == 1) chart.series[0].label.clear();
  return svg_chart(chart);
}

std::string small_charts(const RunHistory& history) {
  const Points norm = points_of(history, &Step::grad_norm);
  std::string out = timestep_chart(history) + validation_chart(history) + rate_chart(history);
  out += svg_chart({.title = "Gradient norm before clipping",
                    .series = {{"each step", norm, ChartSeries::Look::Faint}, {"smoothed", smoothed(norm)}},
                    .from_zero = true,
                    .cut_outliers = true});
  out += svg_chart({.title = "Steps per second", .series = {{"", points_of(history, &Step::it_per_s)}}, .from_zero = true});
  out += svg_chart({.title = "Tokens per second", .series = {{"", points_of(history, &Step::tokens_per_s)}}, .from_zero = true});
  out += svg_chart({.title = "Memory, GiB",
                    .series = {{"device", points_of(history, &Step::device_gib)}, {"host", points_of(history, &Step::host_gib)}},
                    .from_zero = true});
  return out.empty() ? "" : R"(<div class="charts">)" + out + "</div>";
}

std::string charts(const RunHistory& history) {
  const std::string wide = loss_chart(history, 1100, 320), narrow = loss_chart(history, 440, 260);
  const std::string loss =
      wide.empty() ? "" : R"(<div class="charts wide">)" + wide + R"(</div><div class="charts narrow">)" + narrow + "</div>";
  return loss + small_charts(history);
}

std::string warning_list(const RunHistory& history) {
  constexpr size_t kMost = 200;
  if (history.warnings.empty()) return {};
  std::string out = R"(<h2>Warnings</h2><div class="box"><ul class="warnings">)";
  for (size_t i = 0; i < std::min(kMost, history.warnings.size()); ++i)
    out += fmt::format("<li><small>step {}</small> {}</li>", history.warnings[i].step, html_text(history.warnings[i].text));
  if (history.warnings.size() > kMost) out += fmt::format("<li>and {} more</li>", history.warnings.size() - kMost);
  return out + "</ul></div>";
}

std::string file_table(const char* title, const std::vector<RunHistory::File>& files) {
  if (files.empty()) return {};
  const bool sizes = std::any_of(files.begin(), files.end(), [](const auto& f) { return f.bytes > 0; });
  std::string out = fmt::format(R"(<h2>{}</h2><div class="box"><table><tr><th>step</th><th>epoch</th><th>file</th>{}</tr>)",
                                title, sizes ? "<th>size</th><th>SHA-256</th>" : "");
  for (const auto& f : files) {
    out += fmt::format(R"(<tr><td class="n">{}</td><td class="n">{}</td><td{}>{}</td>)", f.step, f.epoch,
                       f.removed ? R"( class="removed")" : "", html_text(f.file));
    if (sizes) out += fmt::format(R"(<td class="n">{}</td><td><code>{}</code></td>)", byte_text(f.bytes), html_text(f.sha256));
    out += "</tr>";
  }
  return out + "</table></div>";
}

std::string settings_table(const RunHistory& history) {
  const auto options = history.start.find("options");
  if (options == history.start.end() || !options->is_object() || options->empty()) return {};
  std::string out = R"(<details open><summary>Settings</summary><div class="box"><table>)";
  for (const auto& [name, value] : options->items()) {
    const bool blank = value.is_string() && value.get_ref<const std::string&>().empty();
    if (value.is_null() || blank || (value.is_structured() && value.empty())) continue;
    const std::string text =
        value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    out += fmt::format("<tr><th>{}</th><td>{}</td></tr>", html_text(name), html_text(text));
  }
  return out + "</table></div></details>";
}

}  // namespace

std::string report_html(const RunHistory& history, const std::filesystem::path& folder) {
  const std::string name = start_text(history, "name");
  std::string page = fmt::format(
      R"(<!doctype html><html lang="en"><head><meta charset="utf-8">)"
      R"(<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">)"
      R"(<meta name="viewport" content="width=device-width,initial-scale=1"><title>{}</title><style>{}</style></head><body><main>)",
      html_text(name.empty() ? "Training report" : name + " – training report"), kReportStyle);
  page += report_head(history) + cards(history) + charts(history);
  if (const std::string samples = sample_grid(history, folder); !samples.empty()) page += "<h2>Samples</h2>" + samples;
  page += warning_list(history) + file_table("Checkpoints", history.checkpoints) + file_table("States", history.states);
  return page + settings_table(history) + "</main></body></html>\n";
}

void write_report(const RunHistory& history, const std::filesystem::path& folder, const std::filesystem::path& html) {
  const std::string page = report_html(history, folder);
  AtomicFile file(html);
  file.write(page.data(), page.size());
  file.commit();
}

void write_report(const std::filesystem::path& jsonl, const std::filesystem::path& html) {
  write_report(read_history(jsonl), jsonl.parent_path(), html);
}

}  // namespace flux2
