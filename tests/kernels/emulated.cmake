# The kernel units of instruction sets that the build machine may lack, built once more against software
# intrinsics (emulated_intrinsics.h, SIMDe) and tested like the real tables. Their namespaces are renamed so that
# both kinds fit into one program. Without SIMDe the tests that need it skip.
function(sluice_emulate target)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    return()
  endif()
  include(CheckIncludeFileCXX)
  check_include_file_cxx(simde/x86/avx512.h SLUICE_HAS_SIMDE -mavx2)
  if(NOT SLUICE_HAS_SIMDE)
    message(STATUS "no SIMDe headers (libsimde-dev): AVX-512, AVX-VNNI and AMX kernels are built but not tested")
    return()
  endif()
  if(NOT TARGET emulated_isa)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/avxvnni/*.cc
         ${CMAKE_SOURCE_DIR}/src/kernels/avx512/*.cc ${CMAKE_SOURCE_DIR}/src/kernels/amx/*.cc)
    list(FILTER files EXCLUDE REGEX "/peak\\.cc$")  # a loop to time, nothing to test
    # Objects of their own: a source file's flags are set per directory, and these need none of isa.cmake's.
    add_library(emulated_isa OBJECT ${files})
    target_compile_options(emulated_isa PRIVATE -mavx2 -mfma -mf16c -Wno-psabi)
    if(SLUICE_FUZZ)
      # Sanitizers in the software intrinsics would take many minutes to build.
      target_compile_options(emulated_isa PRIVATE -O1 -fno-sanitize=all -Wno-pass-failed)
    else()
      target_compile_options(emulated_isa PRIVATE -O2 -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
    target_include_directories(emulated_isa PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_compile_definitions(emulated_isa PRIVATE $<TARGET_PROPERTY:sluice_kernels,COMPILE_DEFINITIONS>
      "SLUICE_INTRINSICS=\"tests/kernels/emulated_intrinsics.h\""
      avxvnni=emulated_avxvnni avx512=emulated_avx512 amx=emulated_amx
      AvxVnniOps=EmulatedAvxVnniOps Avx512Ops=EmulatedAvx512Ops AmxOps=EmulatedAmxOps)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:emulated_isa>)
  target_compile_definitions(${target} PRIVATE SLUICE_EMULATED)
endfunction()
