#pragma once

#include <string>

#include "cli/command.h"
#include "image/image.h"

namespace flux2 {

// Draws a picture in the terminal as --show and --zoom say; nothing when neither stdout nor stderr is one.
void show_picture(const Image& image, Invocation& run);

}  // namespace flux2
