#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "record/request_fields.h"
#include "record/request_spec.h"

// The values of request fields: read from texts and JSON, written as such, put into a spec and taken out of it.
namespace flux2 {

using FieldValue = std::variant<std::string, std::vector<std::string>, int64_t, double, bool>;

// Parses texts written by the user. Throws InvalidArgument, naming `origin` and the valid values, also for fields that are not
// available yet.
FieldValue parse_value(const Field& field, const std::vector<std::string>& texts, const std::string& origin);
std::vector<std::string> print_value(const FieldValue& value);  // which parse_value reads back

// The same for JSON, as requests over HTTP and records write it.
FieldValue value_from_json(const Field& field, const Json& json, const std::string& origin);
Json value_to_json(const FieldValue& value);

void set_value(RequestSpec& spec, const Field& field, FieldValue value);
std::optional<FieldValue> get_value(const RequestSpec& spec, const Field& field);  // nothing when it is not set

// A whole spec as a JSON object of the fields that are set, and back. Unknown keys are InvalidArgument with the nearest name.
Json spec_to_json(const RequestSpec& spec);
RequestSpec spec_from_json(const Json& json);

}  // namespace flux2
