# Turns FLUX2_CUDA_ARCHITECTURES into the list CMake takes.
#   AUTO  the architecture of this machine's GPU; without one, PTX for 8.0, which every NVIDIA GPU since 2020 can run, and machine
#         code for Hopper, whose own instructions PTX cannot hold
#   all   machine code for every architecture that the toolkit knows and we support, and PTX for those to come
#   else  the list as it is
function(flux2_cuda_architectures wanted out)
  if(CMAKE_CUDA_COMPILER_VERSION AND CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
    message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is too old: 12.4 or later is needed. "
      "Install a newer toolkit, or use -DFLUX2_CUDA=OFF for a build without the GPU backend.")
  endif()
  if(wanted STREQUAL "AUTO")
    set(list 80-virtual 90a-real)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE found ERROR_QUIET
      RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" found "${found}")
    if(status EQUAL 0 AND found)
      list(REMOVE_DUPLICATES found)
      string(REPLACE "." "" list "${found}")
      list(TRANSFORM list REPLACE "^90$" "90a")
      list(TRANSFORM list APPEND "-real")
    endif()
  elseif(wanted STREQUAL "all")
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known)
    set(list)
    foreach(architecture 80 86 89 90 100 120)
      if(known MATCHES "compute_${architecture}[^0-9]")
        list(APPEND list ${architecture})
      endif()
    endforeach()
    list(GET list -1 newest)
    list(TRANSFORM list REPLACE "^90$" "90a")
    list(TRANSFORM list APPEND "-real")
    list(APPEND list ${newest}-virtual)
  else()
    set(list ${wanted})
  endif()
  message(STATUS "GPU architectures: ${list}")
  set(${out} "${list}" PARENT_SCOPE)
endfunction()
