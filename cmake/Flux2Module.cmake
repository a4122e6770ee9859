# One folder, one target: flux2_module(tensor SOURCES a.cpp b.cpp TESTS a_test.cpp DEPENDS base)
# makes the static library flux2_tensor and, with tests on, the program tensor_tests.
# Sources are listed, never globbed, so that a new file or a new dependency is a line in review.
function(flux2_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;TEST_DEPENDS;DEPENDS;PACKAGES" ${ARGN})
  set(target flux2_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  foreach(dep IN LISTS ARG_DEPENDS)
    target_link_libraries(${target} PUBLIC flux2_${dep})
  endforeach()
  target_link_libraries(${target} PUBLIC ${ARG_PACKAGES} PRIVATE $<BUILD_INTERFACE:flux2_warnings>)
  flux2_unity(${target} ${FLUX2_UNITY_LIBRARIES})
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/src/")
    flux2_install_library(${target} ${name} ${ARG_PACKAGES})
  endif()
  if(FLUX2_TESTS AND ARG_TESTS)
    flux2_test(${name}_tests SOURCES ${ARG_TESTS} DEPENDS ${name} ${ARG_TEST_DEPENDS} LABELS unit)
    add_dependencies(unit_tests ${name}_tests)
  endif()
endfunction()

# Compiles several sources of a target at a time: each header is then read once for all of them, which takes about a third of
# the time. CMake leaves alone sources with options of their own. Where the anonymous namespaces of two files clash, one of
# them gets the property SKIP_UNITY_BUILD_INCLUSION.
function(flux2_unity target wanted)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${wanted} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# flux2_test(ops_tests SOURCES x_test.cpp DEPENDS ops backend_cpu [LABELS slow]): a GoogleTest program whose cases ctest runs.
function(flux2_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  foreach(dep IN LISTS ARG_DEPENDS)
    target_link_libraries(${name} PRIVATE flux2_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE flux2_warnings flux2_test_paths GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${FLUX2_TEST_OPTIMISATION})
  flux2_unity(${name} ${FLUX2_UNITY_TESTS})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
endfunction()
