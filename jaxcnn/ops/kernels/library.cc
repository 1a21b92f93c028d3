// What jaxcnn/ops/native/loader.py asks to decide whether it can use this library. The names must
// not change: it also calls the functions of libraries compiled from older sources.

#include "xla/ffi/api/c_api.h"

// The version of XLA's foreign function interface, as major * 1000 + minor.
extern "C" int JaxcnnInterface() { return XLA_FFI_API_MAJOR * 1000 + XLA_FFI_API_MINOR; }

// The digest of the sources that this library was compiled from.
extern "C" const char* JaxcnnSources() { return JAXCNN_SOURCES; }

// The compiler that made this library.
extern "C" const char* JaxcnnCompiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#else
  return "GCC " __VERSION__;
#endif
}

// Whether this processor has the instructions that this library was compiled for.
extern "C" int JaxcnnRuns() {
#if defined(__AVX512F__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
#elif defined(__AVX2__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return 1;
#endif
}
