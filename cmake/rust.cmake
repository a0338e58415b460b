# The chat template crate (src/text/rust) as a static library behind a C header.
if(SLUICE_RUST AND EXISTS ${CMAKE_SOURCE_DIR}/src/text/rust/Cargo.toml)
  find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
  set(rust_dir ${CMAKE_BINARY_DIR}/rust)
  if(CMAKE_CROSSCOMPILING)
    set(rust_triple aarch64-unknown-linux-gnu)
    set(rust_args --target ${rust_triple})
    set(rust_env CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc)
    set(rust_lib ${rust_dir}/${rust_triple}/release/libsluice_text.a)
    if(SLUICE_RUSTC)
      list(APPEND rust_env RUSTC=${SLUICE_RUSTC})
    endif()
  else()
    set(rust_lib ${rust_dir}/release/libsluice_text.a)
  endif()
  file(GLOB_RECURSE rust_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/text/rust/src/*.rs)
  add_custom_command(
    OUTPUT ${rust_lib}
    COMMAND ${CMAKE_COMMAND} -E env ${rust_env} CARGO_TARGET_DIR=${rust_dir}
            ${CARGO} build --release --locked -j2 --quiet --manifest-path ${CMAKE_SOURCE_DIR}/src/text/rust/Cargo.toml ${rust_args}
    DEPENDS ${rust_sources} ${CMAKE_SOURCE_DIR}/src/text/rust/Cargo.toml ${CMAKE_SOURCE_DIR}/src/text/rust/Cargo.lock
    COMMENT "cargo: src/text/rust"
    VERBATIM)
  add_custom_target(sluice_text_rust DEPENDS ${rust_lib})
  get_target_property(text_type sluice_text TYPE)
  if(NOT text_type STREQUAL INTERFACE_LIBRARY)
    add_dependencies(sluice_text sluice_text_rust)
    target_link_libraries(sluice_text PUBLIC ${rust_lib} dl)
    target_compile_definitions(sluice_text PRIVATE SLUICE_HAVE_RUST=1)
  endif()
endif()
