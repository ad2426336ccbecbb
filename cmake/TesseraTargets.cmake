# tessera_library(NAME SRCS ... DEPS ...)     a static library, includes from the repository root
# tessera_binary(NAME SRCS ... DEPS ...)      a program in build/<preset>/bin
# tessera_test(NAME SRCS ... DEPS ... [LABELS ...] [TIMEOUT s] [ENV K=V ...])   a GoogleTest program, one ctest entry per test case
# tessera_python_tests(SUITE FILE COMMAND ... PROPERTIES ... [ENV K=V ...])     one ctest entry per method of its one class; the command is
#   given the file and CLASS.METHOD
# A target that depends on LibTorch takes the shared precompiled header.
include(GoogleTest)

function(_tessera_common target)
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/gen")
  target_link_libraries(${target} PUBLIC ${ARGN})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter -Werror=return-type -Werror=unused-result)
  if("libtorch::cpu" IN_LIST ARGN)
    target_precompile_headers(${target} REUSE_FROM torch_pch)
    # The header was compiled as -fPIC; programs would ask for -fPIE and be refused it.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    # It was also compiled with -pthread, which everything linked with gRPC gets.
    target_compile_options(${target} PRIVATE -fPIC -pthread)
  endif()
endfunction()

function(tessera_library name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  if(A_SRCS)
    add_library(${name} STATIC ${A_SRCS})
    _tessera_common(${name} ${A_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/gen")
    target_link_libraries(${name} INTERFACE ${A_DEPS})
  endif()
endfunction()

function(tessera_binary name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  _tessera_common(${name} ${A_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endfunction()

function(tessera_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SRCS;DEPS;LABELS;ENV" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 600)  # ends what hangs; a slow machine must not notice it
  endif()
  add_executable(${name} ${A_SRCS})
  _tessera_common(${name} ${A_DEPS} tessera_test_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  # Discovery takes the properties as one list, in which neither an empty value nor a list survives: the
  # environment is set by the command instead.
  set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR
    "${CMAKE_COMMAND};-E;env;OMP_NUM_THREADS=1;${A_ENV}")
  set(labels)
  if(A_LABELS)
    list(GET A_LABELS 0 label)
    set(labels LABELS "${label}")
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
    PROPERTIES TIMEOUT ${A_TIMEOUT} ${labels})
endfunction()

function(tessera_python_tests suite file)
  cmake_parse_arguments(A "" "" "COMMAND;PROPERTIES;ENV" ${ARGN})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" class REGEX "^class ")
  string(REGEX REPLACE "^class ([A-Za-z]+).*" "\\1" class "${class}")
  file(STRINGS "${file}" methods REGEX "^    def test_")
  foreach(line ${methods})
    string(REGEX REPLACE "^    def (test_[a-z0-9_]+).*" "\\1" method "${line}")
    set(name "${suite}.${class}.${method}")
    add_test(NAME ${name} COMMAND ${A_COMMAND} "${file}" "${class}.${method}")
    set_tests_properties(${name} PROPERTIES TIMEOUT 1800 PROCESSORS 2 RESOURCE_LOCK e2e ${A_PROPERTIES}
      ENVIRONMENT "TESSERA_BIN=${PROJECT_BINARY_DIR}/bin;PYTHONDONTWRITEBYTECODE=1;${A_ENV}")
  endforeach()
endfunction()
