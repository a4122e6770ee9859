#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "app/adapters.h"
#include "app/model_keeper.h"
#include "app/output_name.h"
#include "app/picture_writer.h"
#include "cli/command.h"
#include "cli/grid_axis.h"
#include "cli/prepare.h"
#include "cli/progress_display.h"
#include "cli/show.h"
#include "cli/user_input.h"
#include "image/resize.h"
#include "image/sheet.h"

namespace flux2 {

namespace {

constexpr size_t kMostCells = 1024;
constexpr size_t kMostListed = 40'000;  // bytes about cells that fit where a file's metadata is limited to 64 KiB

struct Cell {
  std::vector<size_t> at;  // index on each axis: x, y, z
  ModelFiles model;
  ResolvedRequest request;
  Image image;
  std::string file;
};

// A number where it is one.
Json as_json(const std::string& value) {
  const auto parsed = try_parse_json(value);
  return parsed && parsed->is_number() ? *parsed : Json(value);
}

class Grid {
 public:
  explicit Grid(Invocation& run) : run_(run), display_(run.console), keeper_(run), writer_(run.spec()) {
    for (const char* name : {"x", "y", "z"}) {
      const Setting* given = run.settings.find(name);
      axes_.push_back(given ? in_context(given->origin, [&] { return parse_grid_axis(given->values.back()); }) : GridAxis{});
    }
    check(!axes_[0].option.empty() || !axes_[1].option.empty(), "a grid needs an axis: --x steps=4,8");
    for (size_t a = 0; a < 3; ++a)
      for (size_t b = 0; b < a; ++b)
        check(axes_[a].option.empty() || axes_[a].option != axes_[b].option, "{} is used for two axes", axes_[a].option);
    prepare();
  }

  int run() {
    // Models change as seldom as possible.
    std::vector<size_t> order(cells_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<std::string> keys;
    for (const Cell& cell : cells_) keys.push_back(ModelKeeper::key_of(cell.request.spec, cell.model));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] < keys[b]; });
    const GenerationRecord& first = cells_[0].request.record;
    writer_.expect(target_, 1);
    writer_.check_targets(run_.log);
    check_show_options(run_.settings);
    sheet_ = writer_.next_path(target_, first);
    for (size_t n = 0; n < order.size(); ++n) {
      run_.console.note(fmt::format("{}/{}  {}", n + 1, order.size(), title(cells_[order[n]])));
      make(cells_[order[n]], order[n]);
    }
    finish();
    return 0;
  }

 private:
  size_t length(size_t axis) const { return std::max<size_t>(1, axes_[axis].values.size()); }
  std::string label(size_t axis, size_t index) const { return axes_[axis].values.empty() ? "" : axes_[axis].label(index); }

  std::string title(const Cell& cell) const {
    std::string text;
    for (size_t a = 0; a < 3; ++a)
      if (const std::string part = label(a, cell.at[a]); !part.empty()) text += (text.empty() ? "" : ", ") + part;
    return text;
  }

  // Everything is resolved before the first picture is made, so that a wrong value is said at once.
  void prepare() {
    const bool prompt_axis = std::any_of(axes_.begin(), axes_.end(), [](const GridAxis& a) { return a.option == "prompt"; });
    const bool elsewhere = prompt_axis || run_.settings.has("from") || run_.settings.has("remix");
    const auto prompts = read_prompts(run_, elsewhere);
    check(prompts.size() == 1, "a grid has one prompt; several are an axis: --y \"prompt=a fox|a cat\"");
    check(length(0) * length(1) * length(2) <= kMostCells, "a grid has at most {} cells", kMostCells);
    target_ = run_.settings.text("output");
    check(target_ != "-", "a grid is written to files, not to standard output");

    SettingLayer same = {{"batch", {{"1"}, "grid"}}, {"repeat", {{"1"}, "grid"}}};
    if (!prompts[0].prompt.empty()) same["prompt"] = {{prompts[0].prompt}, "--prompt"};
    // One seed for all cells: what differs is then the axis alone.
    const std::string seed = run_.settings.text("seed", run_.settings.has("from") ? "" : "random");
    if (seed == "random" || seed == "-1") same["seed"] = {{std::to_string(std::random_device{}())}, "grid"};

    FoundModels found;
    for (size_t z = 0; z < length(2); ++z)
      for (size_t y = 0; y < length(1); ++y)
        for (size_t x = 0; x < length(0); ++x) {
          Cell cell{.at = {x, y, z}, .model = {}, .request = {}, .image = {}, .file = {}};
          SettingLayer own;
          for (size_t a = 0; a < 3; ++a)
            if (!axes_[a].values.empty()) set(own, axes_[a].option, axes_[a].values[cell.at[a]]);
          hide_configured_transformer(own, run_.settings);
          Invocation one = run_;
          one.positional.clear();
          one.settings = run_.settings.with(same).with(own);
          PreparedRun prepared = prepare_run(one, Task::Generate, &found);
          cell.model = std::move(prepared.model);
          cell.request = std::move(prepared.requests.front());
          cells_.push_back(std::move(cell));
        }
    std::vector<ResolvedRequest> requests;
    for (Cell& cell : cells_) requests.push_back(std::move(cell.request));
    rewrite_requests(run_, cells_.front().model, requests);
    for (size_t i = 0; i < cells_.size(); ++i) cells_[i].request = std::move(requests[i]);
  }

  // An adapter stands beside those that all cells have.
  void set(SettingLayer& layer, const std::string& option, const std::string& value) const {
    if (!option.starts_with("lora:")) {
      layer[option] = {{value}, "--" + option};
      return;
    }
    if (!layer.contains("lora")) {
      const Setting* given = run_.settings.find("lora");
      layer["lora"] = given ? *given : Setting{{}, "--" + option};
    }
    layer["lora"].values = adapters_beside(layer["lora"].values, {option.substr(5) + ":" + value}, run_);
  }

  void make(Cell& cell, size_t number) {
    const bool singles = !run_.settings.flag("sheet-only");
    const std::string file = numbered(sheet_, static_cast<int>(number) + 1).string();
    if (singles) writer_.expect(file, 1);
    if (singles && chooses_name(target_)) writer_.never_overwrite(file);
    writer_.round_as(cell.request.spec);
    PictureMaker& maker = keeper_.maker_for(cell.request.spec, cell.model, {&cell.request, 1}, display_.progress());
    const auto deliver = [&](const Picture& picture, GenerationRecord record) {
      const Finish& finish = cell.request.finish;
      cell.image = finish ? finish(writer_.image_of(picture)) : writer_.image_of(picture);
      if (const std::string problem = finish ? problem_of_finished(cell.image, record) : ""; !problem.empty())
        run_.log.warn("{}", problem);
      cell.request.record = record;
      if (!singles) return;
      const WrittenPicture written = writer_.write(picture, std::move(record), file, finish);
      cell.file = written.path.filename().string();
      if (!run_.console.json()) run_.console.result_path(written.path.string());
    };
    display_.begin();
    maker.make(cell.request, deliver, display_.progress(cell.request.spec.deadline));
  }

  Json listed(const std::vector<SheetPlace>& places) const {
    Json axes = Json::array(), cells = Json::array();
    for (const GridAxis& axis : axes_)
      if (!axis.values.empty()) axes.push_back({{"option", axis.option}, {"values", axis.values}});
    for (size_t i = 0; i < cells_.size(); ++i) {
      const SheetPlace& p = places[i];
      Json json = {{"seed", cells_[i].request.record.seed()}, {"box", {p.left, p.top, p.width, p.height}}};
      for (size_t a = 0; a < 3; ++a)
        if (!axes_[a].values.empty()) json[axes_[a].option] = as_json(axes_[a].values[cells_[i].at[a]]);
      if (!cells_[i].file.empty()) json["file"] = cells_[i].file;
      cells.push_back(std::move(json));
    }
    return {{"axes", axes}, {"cells", cells}};
  }

  void finish() {
    std::vector<SheetBlock> blocks;
    size_t next = 0;
    for (size_t z = 0; z < length(2); ++z) {
      SheetBlock block{label(2, z), {}, {}, {}};
      for (size_t x = 0; x < length(0); ++x) block.columns.push_back(label(0, x));
      for (size_t y = 0; y < length(1); ++y) block.rows.push_back(label(1, y));
      for (size_t i = 0; i < length(0) * length(1); ++i) block.cells.push_back(std::move(cells_[next++].image));
      blocks.push_back(std::move(block));
    }
    Sheet sheet = make_sheet(blocks, static_cast<int>(run_.settings.integer("cell", 16, 4096).value_or(4096)));
    GenerationRecord record = cells_[0].request.record;
    record.kind = "grid";
    record.request.width = sheet.image.width, record.request.height = sheet.image.height;
    Json grid = listed(sheet.places);
    if (sheet_.extension() != ".png" && grid.dump(-1, ' ', false, Json::error_handler_t::replace).size() > kMostListed) {
      run_.console.warn("the sheet's metadata does not list its cells: only PNG has room for so many");
      grid.erase("cells");
    }
    record.extra = {{"grid", grid}};
    display_.finish();
    const WrittenPicture written = writer_.write(std::move(sheet.image), record, target_);
    run_.console.result(run_.console.json() ? Json{{"sheet", written.path.string()}, {"grid", grid}}.dump(
                                                  2, ' ', false, Json::error_handler_t::replace)
                                            : written.path.string());
    show_picture(written.image, run_);
  }

  Invocation& run_;
  ProgressDisplay display_;
  ModelKeeper keeper_;
  PictureWriter writer_;
  std::vector<GridAxis> axes_;  // x, y, z; an axis that is not there has no values
  std::vector<Cell> cells_;
  std::string target_;
  std::filesystem::path sheet_;
};

}  // namespace

int run_grid(Invocation& run) { return Grid(run).run(); }

}  // namespace flux2
