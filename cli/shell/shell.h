#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/model_choice.h"
#include "app/model_keeper.h"
#include "app/picture_writer.h"
#include "cli/progress_display.h"
#include "cli/shell/line_history.h"
#include "cli/shell/settings.h"
#include "cli/show.h"

namespace flux2 {

// An image that was made or loaded: $1, $2, …
struct ShellPicture {
  std::filesystem::path path;
  int width = 0, height = 0;
  std::optional<uint64_t> seed;
  std::string prompt;
  SettingLayer settings;  // everything that produced it, for `use`
};

// The interactive prompt: persistent settings, images that can be reused, one model in memory.
class Shell {
 public:
  explicit Shell(Invocation& run);

  int run();  // until the end of input; exit status

  // Runs one line as if it were typed. Returns false if the session should end. Errors are printed.
  bool enter(const std::string& line);

 private:
  friend struct ShellCommands;
  using Clock = std::chrono::steady_clock;

  void interpret(const std::string& line);
  bool run_command(const std::string& line);  // false: it is none
  void change(const std::vector<std::pair<std::string, std::string>>& pairs);
  void accept(SettingLayer layer);  // when its values make sense; prints what is new
  void take_prompt(const std::string& line);
  void make(const SettingLayer& once);
  void deliver(const WrittenPicture& written, const GenerationRecord& record, const ResolvedRequest& resolved,
               const Invocation& one, double seconds);
  void show_line(size_t index) const;
  Screen* screen(Invocation& one);

  Invocation invocation(const SettingLayer& once) const;
  SettingLayer above_options(SettingLayer layer) const;  // settings of the session, to be put above the options of the program
  size_t index_of(const std::string& word) const;        // the index of image $N; throws if it does not exist
  std::string path_of(const std::string& word) const { return pictures_[index_of(word)].path.string(); }
  void add_picture(ShellPicture picture);

  Invocation& run_;
  ProgressDisplay display_;
  FoundModels found_;
  ModelKeeper keeper_;
  LineHistory history_;
  ShellSettings settings_;
  SettingLayer once_;  // references and size that stood in front of the last prompt
  std::vector<ShellPicture> pictures_;
  std::set<std::string> outputs_;  // where images of this session were written: $N must stay what it is
  std::optional<Screen> screen_;
  std::string screen_key_ = "none yet";
  double last_seconds_ = 0;
  std::optional<Clock::time_point> interrupted_;
  int sourcing_ = 0;  // files that are being read, one inside the other
  bool leave_ = false;
};

}  // namespace flux2
