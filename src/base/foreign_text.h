#pragma once

#include <string>
#include <string_view>

// Texts that come from files, prompts and servers, and so from anybody.
namespace flux2 {

// Whether a text is a name, as opposed to a path: not empty, without slashes and control characters, not "." or "..", at most
// 255 bytes of valid UTF-8. Prompts and the records of images may use names only.
bool is_plain_name(std::string_view text);

enum class LineBreaks { Keep, Escape };

// A text in a form that is safe to print. Control characters (also U+0080 to U+009F), marks that change the direction of text,
// line separators and invalid UTF-8 are written as \u001b, \u202e or \xff. Tabs are kept. JSON keeps its meaning, since JSON
// writes these characters in the same way.
std::string visible_text(std::string_view text, LineBreaks breaks = LineBreaks::Keep);

// The same for a message of one entry: every line but the first is indented, so that no text inside a message can look like a
// message of its own.
std::string visible_message(std::string_view text);

}  // namespace flux2
