# The chat template crate (src/text/rust) as a static library behind a C header. A toolchain file may set CARGO and
# SLUICE_RUSTC (cmake/arm64.cmake does: Debian's pair, whose arm64 standard library is a package).
if(SLUICE_RUST AND EXISTS ${CMAKE_SOURCE_DIR}/src/text/rust/Cargo.toml)
  find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
  execute_process(COMMAND ${CARGO} --version OUTPUT_VARIABLE cargo_version)
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" cargo_version "${cargo_version}")
  if(cargo_version VERSION_LESS 1.87)
    message(FATAL_ERROR "${CARGO} is version '${cargo_version}', the chat template crate needs 1.87: "
                        "run tools/setup, or configure with -DSLUICE_RUST=OFF to go without chat templates")
  endif()

  set(rust_crate ${CMAKE_SOURCE_DIR}/src/text/rust)
  set(rust_dir ${CMAKE_BINARY_DIR}/rust)
  set(rust_env CARGO_TARGET_DIR=${rust_dir})
  set(rust_args --release --locked -j2 --quiet --manifest-path ${rust_crate}/Cargo.toml)
  set(rust_lib ${rust_dir}/release/libsluice_text.a)
  # A named target keeps flags and linker away from what cargo runs while it builds.
  if(CMAKE_CROSSCOMPILING OR SLUICE_FUZZ)
    set(rust_triple ${CMAKE_SYSTEM_PROCESSOR}-unknown-linux-gnu)
    string(TOUPPER ${rust_triple} rust_linker)
    string(REPLACE "-" "_" rust_linker ${rust_linker})
    list(APPEND rust_args --target ${rust_triple})
    list(APPEND rust_env CARGO_TARGET_${rust_linker}_LINKER=${CMAKE_C_COMPILER})
    set(rust_lib ${rust_dir}/${rust_triple}/release/libsluice_text.a)
  endif()
  if(SLUICE_FUZZ)  # libFuzzer sees which branches of a template were taken; linking as a whole would only take longer
    set(rust_flags -Cpasses=sancov-module)
    foreach(option level=4 inline-8bit-counters pc-table trace-compares)
      string(APPEND rust_flags " -Cllvm-args=-sanitizer-coverage-${option}")
    endforeach()
    list(APPEND rust_env "RUSTFLAGS=${rust_flags}" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16)
  endif()
  if(SLUICE_RUSTC)
    list(APPEND rust_env RUSTC=${SLUICE_RUSTC})
  endif()

  file(GLOB_RECURSE rust_sources CONFIGURE_DEPENDS ${rust_crate}/src/*.rs)
  add_custom_command(
    OUTPUT ${rust_lib}
    COMMAND ${CMAKE_COMMAND} -E env ${rust_env} ${CARGO} build ${rust_args}
    DEPENDS ${rust_sources} ${rust_crate}/Cargo.toml ${rust_crate}/Cargo.lock
    COMMENT "cargo: src/text/rust"
    VERBATIM)
  add_custom_target(sluice_text_rust DEPENDS ${rust_lib})
  get_target_property(text_type sluice_text TYPE)
  if(NOT text_type STREQUAL INTERFACE_LIBRARY)
    add_dependencies(sluice_text sluice_text_rust)
    target_link_libraries(sluice_text PUBLIC ${rust_lib} ${CMAKE_DL_LIBS})
    target_compile_definitions(sluice_text PRIVATE SLUICE_HAVE_RUST=1)
  endif()
endif()
