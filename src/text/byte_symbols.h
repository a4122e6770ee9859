#pragma once

#include <string>
#include <string_view>

namespace flux2 {

// Vocabularies write a byte as one visible character: itself where Latin-1 prints it, otherwise U+0100 and up in the order of the
// remaining 68 bytes. A space is Ġ, a line feed Ċ.
void append_byte_symbol(std::string& out, unsigned char byte);

// The bytes a token's symbols stand for. A token with any other character stands for its own text.
void append_bytes_of(std::string& out, std::string_view token);

}  // namespace flux2
