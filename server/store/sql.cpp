#include "server/store/sql.h"

namespace flux2 {

SqlStatement& SqlStatement::bind(int64_t value) {
  values_.emplace_back().integer = value;
  return *this;
}

SqlStatement& SqlStatement::bind(std::string_view text) {
  SqlValue& value = values_.emplace_back();
  value.type = SqlValue::Type::Text;
  value.text = text;
  return *this;
}

SqlStatement& SqlStatement::bind_real(double value) {
  SqlValue& added = values_.emplace_back();
  added.type = SqlValue::Type::Real;
  added.real = value;
  return *this;
}

bool SqlStatement::step() {
  if (!cursor_) cursor_ = connection_.execute(sql_, values_);
  return cursor_->next();
}

int64_t SqlStatement::run() {
  while (step()) {}
  return cursor_->changes();
}

}  // namespace flux2
