#include "app/selftest.h"

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "cli/command.h"
#include "cli/table.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

Json to_json(const SelftestResult& r) {
  Json json = {{"test", r.what}, {"ok", r.passed()}, {"seconds", r.seconds}};
  if (r.tolerance > 0) json.update({{"deviation", r.deviation}, {"tolerance", r.tolerance}, {"stage", r.stage}});
  if (!r.passed()) json.update({{"problem", r.problem}, {"hint", command_line_words(r.remedy)}});
  return json;
}

std::vector<std::string> row_of(const SelftestResult& r) {
  const bool numbers = r.tolerance > 0 && !r.stage.empty();
  return {r.what, numbers ? fmt::format("{:.2g} ({})", r.deviation, r.stage) : "",
          r.tolerance > 0 ? fmt::format("{:.2g}", r.tolerance) : "", r.tolerance > 0 ? fmt::format("{:.1f} s", r.seconds) : "",
          r.passed() ? "pass" : "FAIL"};
}

}  // namespace

int run_selftest(Invocation& run) {
  check(run.positional.empty(), "selftest takes no arguments");
  if (const std::string path = run.settings.text("write-reference"); !path.empty()) {
    const std::string text = selftest_reference(run).dump() + "\n";
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
    run.console.result_path(path);
    return 0;
  }
  const SelftestReport report = selftest(
      run, run.spec().device.value_or("auto"),
      [&](const SelftestResult& r) {
        if (run.console.progress() == ProgressMode::Bar) run.console.status("tested " + r.what);
      },
      [] { return interrupt_signal() != 0; });
  run.console.clear_status();
  const int status = report.passed() ? 0 : report.files_intact ? kExitDiffers : exit_code(ErrorCode::BadFile);
  if (run.console.json()) {
    Json json = {{"ok", report.passed()}, {"tests", Json::array()}};
    for (const SelftestResult& r : report.results) json["tests"].push_back(to_json(r));
    run.console.result(pretty(json));
    return status;
  }
  std::vector<std::vector<std::string>> rows = {{"TEST", "DEVIATION", "TOLERANCE", "TIME", ""}};
  for (const SelftestResult& r : report.results) rows.push_back(row_of(r));
  run.console.result(text_table(rows));
  for (const SelftestResult& r : report.results)
    if (!r.passed()) run.console.result(fmt::format("{}: {}\n  what to do: {}", r.what, r.problem, command_line_words(r.remedy)));
  run.console.result(report.passed() ? "everything works" : "something is wrong, see above");
  return status;
}

}  // namespace flux2
