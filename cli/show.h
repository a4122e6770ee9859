#pragma once

#include <optional>
#include <string>

#include "app/picture_maker.h"
#include "cli/command.h"
#include "image/image.h"
#include "image/terminal.h"

namespace flux2 {

// Throws InvalidArgument if --show or --zoom is wrong. For commands that show an image at their end, before they begin.
void check_show_options(const Settings& settings);

// A terminal that can draw images.
class Screen {
 public:
  // The terminal according to --show, whose default is `otherwise`. Empty if images are not to be shown, if neither stdout nor
  // stderr is a terminal, or (with one message) if the terminal cannot show images.
  static std::optional<Screen> open(Invocation& run, const std::string& otherwise = "off");

  void draw(const Image& image);
  // At most 512 pixels a side, in place of the step before.
  void draw_step(const Image& image);
  void end_steps() { step_rows_ = 0; }  // what comes next goes below

 private:
  void write(const TerminalPicture& picture);
  Image zoomed(const Image& image) const;

  Console* console_ = nullptr;
  Channel terminal_ = Channel::Message;
  TerminalProtocol protocol_ = TerminalProtocol::None;
  bool tmux_ = false;
  double zoom_ = 1;
  int step_rows_ = 0;  // of the last step drawn
};

// Handles the preview of each step: drawn with --show-steps, printed as an event with --progress json.
class StepDisplay {
 public:
  explicit StepDisplay(Invocation& run) : run_(run) {}

  PictureMaker::OnPreview on_preview();  // empty if previews are not needed

 private:
  Invocation& run_;
  std::optional<Screen> screen_;
};

// Draws an image in the terminal as --show and --zoom say.
void show_picture(const Image& image, Invocation& run);

}  // namespace flux2
