# What `cmake --install` gives besides the program: the libraries, their headers and a CMake package, so that another project
# says find_package(flux2) and links flux2::flux2. examples/embed does.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(FLUX2_PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/flux2)
set(FLUX2_HEADER_FOLDER ${CMAKE_INSTALL_INCLUDEDIR}/flux2)

# flux2_install_library(flux2_net net PkgConfig::CURL): flux2::net for those who use the package, with what it links.
function(flux2_install_library target name)
  set_property(GLOBAL APPEND PROPERTY FLUX2_INSTALLED_PACKAGES ${ARGN})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS ${target} EXPORT flux2Targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${FLUX2_HEADER_FOLDER})
endfunction()

# Called last, when every library is there.
function(flux2_install_package)
  # Everything that makes a picture: what most users link.
  add_library(flux2_everything INTERFACE)
  target_link_libraries(flux2_everything INTERFACE flux2_app)
  set_target_properties(flux2_everything PROPERTIES EXPORT_NAME flux2)
  install(TARGETS flux2_everything EXPORT flux2Targets)

  # Headers keep their paths below src, because they include each other by them. Those of tests stay here.
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION ${FLUX2_HEADER_FOLDER} FILES_MATCHING PATTERN "*.h"
    PATTERN "*_test.h" EXCLUDE PATTERN "*_tests.h" EXCLUDE PATTERN "test_*.h" EXCLUDE)
  install(EXPORT flux2Targets NAMESPACE flux2:: DESTINATION ${FLUX2_PACKAGE_FOLDER})

  # flux2_optional() found these; the package looks for them again.
  get_property(packages GLOBAL PROPERTY FLUX2_INSTALLED_PACKAGES)
  list(REMOVE_DUPLICATES packages)
  list(FILTER packages INCLUDE REGEX "^PkgConfig::")
  set(FLUX2_OPTIONAL_CHECKS "")
  if(packages)
    set(FLUX2_OPTIONAL_CHECKS "find_dependency(PkgConfig)\n")
  endif()
  foreach(package IN LISTS packages)
    get_property(module GLOBAL PROPERTY FLUX2_MODULE_OF_${package})
    string(REPLACE "PkgConfig::" "" prefix ${package})
    string(APPEND FLUX2_OPTIONAL_CHECKS "pkg_check_modules(${prefix} REQUIRED QUIET IMPORTED_TARGET \"${module}\")\n")
  endforeach()
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/flux2Config.cmake.in ${PROJECT_BINARY_DIR}/flux2Config.cmake
    INSTALL_DESTINATION ${FLUX2_PACKAGE_FOLDER} PATH_VARS CMAKE_INSTALL_DATADIR)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/flux2ConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/flux2Config.cmake ${PROJECT_BINARY_DIR}/flux2ConfigVersion.cmake
    DESTINATION ${FLUX2_PACKAGE_FOLDER})
endfunction()
