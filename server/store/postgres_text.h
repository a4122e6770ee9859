#pragma once

#include <string>
#include <string_view>

// How the SQL of the stores, which is written for SQLite, reads for PostgreSQL.
namespace flux2 {

bool is_postgres_address(std::string_view text);  // postgres://… or postgresql://…

// Parameters ? become $1, $2, …; those inside quotes stay.
std::string with_numbered_parameters(std::string_view sql);

// A migration: types, keys that count by themselves, no WITHOUT ROWID. Texts compare by their bytes, as in SQLite.
std::string as_postgres_schema(std::string_view sql);

// PostgreSQL refuses zero bytes and anything that is not UTF-8; those bytes become U+FFFD.
std::string as_postgres_text(std::string_view text);

}  // namespace flux2
