#pragma once

namespace flux2 {

// The style sheet of the report: light and dark as the reader prefers, one column on a phone.
extern const char* const kReportStyle;

}  // namespace flux2
