# Imported targets for LibTorch as a package wheel or a libtorch archive ships it.
#
#   TESSERA_LIBTORCH   folder that holds torch/ (lib, include) and, for a CUDA
#                      build of the wheel, nvidia/ beside it. A libtorch archive
#                      (lib/ and include/ directly inside) works as well.
#
# Targets: libtorch::headers, libtorch::cpu. find_package(Torch) is not used: it
# insists on a whole CUDA toolkit when the wheel was built with CUDA.
set(TESSERA_LIBTORCH "$ENV{TESSERA_LIBTORCH}" CACHE PATH "folder with torch/ or a libtorch archive")
if(EXISTS "${TESSERA_LIBTORCH}/torch/lib/libtorch_cpu.so")
  set(_torch "${TESSERA_LIBTORCH}/torch")
elseif(EXISTS "${TESSERA_LIBTORCH}/lib/libtorch_cpu.so")
  set(_torch "${TESSERA_LIBTORCH}")
else()
  message(FATAL_ERROR "TESSERA_LIBTORCH='${TESSERA_LIBTORCH}' holds no lib/libtorch_cpu.so. "
    "Run './dev build', which fetches LibTorch, or point TESSERA_LIBTORCH at one.")
endif()
set(_nvidia "${TESSERA_LIBTORCH}/nvidia/cu13/lib")

# The wheel's include folder also carries fmt, protobuf and pybind11, which must
# not shadow the system's. Only LibTorch's own folders are put on the path.
set(_torch_include "${CMAKE_BINARY_DIR}/libtorch/include")
file(MAKE_DIRECTORY "${_torch_include}")
foreach(_dir ATen c10 torch caffe2)
  file(CREATE_LINK "${_torch}/include/${_dir}" "${_torch_include}/${_dir}" SYMBOLIC)
endforeach()

add_library(libtorch::headers INTERFACE IMPORTED)
set_target_properties(libtorch::headers PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${_torch_include};${_torch}/include/torch/csrc/api/include"
  INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1;USE_DISTRIBUTED;USE_C10D_GLOO")

add_library(libtorch::torch_cpu SHARED IMPORTED)
set_target_properties(libtorch::torch_cpu PROPERTIES
  IMPORTED_LOCATION "${_torch}/lib/libtorch_cpu.so" IMPORTED_SONAME libtorch_cpu.so)
add_library(libtorch::c10 SHARED IMPORTED)
set_target_properties(libtorch::c10 PROPERTIES
  IMPORTED_LOCATION "${_torch}/lib/libc10.so" IMPORTED_SONAME libc10.so)

add_library(libtorch::cpu INTERFACE IMPORTED)
set_target_properties(libtorch::cpu PROPERTIES
  INTERFACE_LINK_LIBRARIES "libtorch::headers;libtorch::torch_cpu;libtorch::c10"
  INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${_nvidia};LINKER:-rpath-link,${_torch}/lib")

list(APPEND CMAKE_BUILD_RPATH "${_torch}/lib" "${_nvidia}")
