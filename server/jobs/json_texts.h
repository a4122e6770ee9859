#pragma once

#include <string>
#include <vector>

#include "base/json.h"

// JSON values of a request as the texts that the command line would write. A value of another type is InvalidArgument.
namespace flux2 {

// `json` itself if `is_right`; `what` says what it must be.
const Json& must_be(const Json& json, bool is_right, const char* what);

std::string text_of_json(const Json& json);           // a string as it is, anything else as JSON
std::vector<std::string> texts_of(const Json& json);  // of a list of strings
std::string number_text(const Json& json);
std::string numbers_joined(const Json& json);  // "1,2,3" of a list of numbers

}  // namespace flux2
