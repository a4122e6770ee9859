#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/settings.h"

namespace flux2 {

// The settings made by key=value lines of the shell, with undo.
class ShellSettings {
 public:
  // Finds the file of an image that is named $N.
  using PicturePath = std::function<std::string(const std::string& word)>;

  const SettingLayer& layer() const { return layer_; }  // options that are set, by long name
  std::string text(const std::string& option) const;    // as it would be typed; empty when it is not set

  // The layer with one more key; "none" or nothing unsets it. Throws InvalidArgument for a key that does not exist. A list of
  // images keeps those that are there; the others are named in `missing`.
  static SettingLayer changed(SettingLayer layer, const std::string& key, const std::string& value,
                              const PicturePath& picture_path, std::vector<std::string>& missing);

  void replace(SettingLayer layer);  // remembers what was before
  bool undo();                       // false when nothing is left to undo

  static std::string option_of(const std::string& key);  // "num_steps" → "steps"
  static const std::vector<std::string>& keys();         // for help and completion

 private:
  SettingLayer layer_;
  std::vector<SettingLayer> before_;
};

}  // namespace flux2
