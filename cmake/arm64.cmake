# Cross build for aarch64 Linux; programs run under qemu's user mode. Libraries come from Debian's :arm64 -dev
# packages (tools/setup --arm64), which live beside the native ones.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
set(PKG_CONFIG_EXECUTABLE aarch64-linux-gnu-pkg-config)

# Static programs: qemu's user mode 7.2 hangs in the loader's first thread stack on some kernels, and a phone
# needs no matching libraries. libedit's own dependencies have to be named then.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT "-lbsd -lmd -ltinfo")

# find_library and find_package look into the target's own folder first and never into the host's.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
list(PREPEND CMAKE_PREFIX_PATH /usr/lib/aarch64-linux-gnu)
set(CMAKE_IGNORE_PATH /usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu/cmake /lib/x86_64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# The template crate: rustup's cargo when it has the target, else Debian's pair of cargo and rustc, whose
# standard library for arm64 is a package of its own.
execute_process(COMMAND rustup target list --installed OUTPUT_VARIABLE rust_targets ERROR_QUIET)
if(NOT rust_targets MATCHES "aarch64-unknown-linux-gnu" AND EXISTS /usr/bin/rustc AND EXISTS /usr/bin/cargo)
  set(CARGO /usr/bin/cargo)
  set(SLUICE_RUSTC /usr/bin/rustc)
endif()
