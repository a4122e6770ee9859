#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "server/store/sql.h"

// How the stores read the rows of a statement.
namespace flux2 {

template <class Read>
auto all_rows(SqlStatement& statement, Read&& read) {
  std::vector<std::decay_t<std::invoke_result_t<Read, const SqlStatement&>>> rows;
  while (statement.step()) rows.push_back(read(statement));
  return rows;
}

template <class Read>
auto first_row(SqlStatement& statement, Read&& read) {
  std::optional<std::decay_t<std::invoke_result_t<Read, const SqlStatement&>>> row;
  if (statement.step()) row = read(statement);
  return row;
}

inline std::string first_text(const SqlStatement& row) { return row.text(0); }

}  // namespace flux2
