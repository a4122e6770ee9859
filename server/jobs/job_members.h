#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

// The members that a job request may have (job_request.h): fields of the request table under their own names, and others.
namespace flux2 {

// For the OpenAPI document: name, JSON type and help.
struct JobMember {
  std::string name, type, help;
  std::vector<std::string> choices = {};
};
std::vector<JobMember> job_members();
bool is_job_member(const std::string& name);

// The field that a member sets, and its values as the command line would write them.
struct FieldTexts {
  std::string field;
  std::vector<std::string> texts;
};
// Empty if the member sets no field. Throws InvalidArgument for an unknown member or an invalid value.
std::optional<FieldTexts> field_texts(const std::string& key, const Json& value);

}  // namespace flux2
