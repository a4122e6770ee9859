#pragma once

#include <filesystem>
#include <string>

// Where things lie on this machine. Only paths.cpp is compiled with them, so every other object is the same in every clone
// and a compiler cache can serve it.
namespace flux2::test {

std::filesystem::path source_folder();  // the repository
std::filesystem::path golden_folder();  // tests/golden
std::filesystem::path pico_folder();    // the bundled model
std::string program();                  // flux2, as built
std::string fault_library();            // faults/faults.cpp, as built
std::string fetch_tool();               // support/fetch_tool.cpp, as built

}  // namespace flux2::test
