# The IQ1, IQ2 and IQ3 types need grids that come from the Python package `gguf` (tools/setup --tests puts it into a
# venv). Without it the build goes on and those types are known by name and size only: a model that uses them is
# refused by name. SLUICE_CODEBOOKS_PYTHON names another interpreter that has the package.
set(SLUICE_CODEBOOKS_PYTHON "" CACHE FILEPATH "python3 with the package gguf (default: the venv of tools/setup, then PATH)")

function(sluice_find_codebooks_python result)
  set(models "$ENV{SLUICE_MODELS}")
  if(NOT models)
    set(models "$ENV{HOME}/.cache/sluice")
  endif()
  find_program(SLUICE_SYSTEM_PYTHON python3)
  foreach(python "${SLUICE_CODEBOOKS_PYTHON}" "${models}/venv/bin/python3" "${SLUICE_SYSTEM_PYTHON}")
    if(python AND EXISTS "${python}")
      execute_process(COMMAND "${python}" ${CMAKE_SOURCE_DIR}/tools/gen_codebooks.py --check
                      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
      if(NOT failed)
        set(${result} "${python}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
  set(${result} "" PARENT_SCOPE)
endfunction()

sluice_find_codebooks_python(codebooks_python)
if(codebooks_python)
  message(STATUS "Codebook types IQ1_* IQ2_* IQ3_*: grids from package gguf (${codebooks_python})")
  set(codebooks_dir ${CMAKE_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${codebooks_dir})
  add_custom_command(
    OUTPUT ${codebooks_dir}/codebooks.cc
    COMMAND ${codebooks_python} ${CMAKE_SOURCE_DIR}/tools/gen_codebooks.py ${codebooks_dir}/codebooks.cc
    DEPENDS ${CMAKE_SOURCE_DIR}/tools/gen_codebooks.py
    COMMENT "Generating the grids of the IQ types" VERBATIM)
  target_sources(sluice_quant PRIVATE ${codebooks_dir}/codebooks.cc)
  # Private: whether the types decode is asked at run time (InfoOf(type).decodes).
  target_compile_definitions(sluice_quant PRIVATE SLUICE_CODEBOOKS)
  target_compile_definitions(sluice_kernels PRIVATE SLUICE_CODEBOOKS)
else()
  message(WARNING
    "Codebook types IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S are LEFT OUT of this build: no Python with "
    "the package gguf. Run tools/setup --tests (or pip install gguf and pass -DSLUICE_CODEBOOKS_PYTHON=...) and configure again.")
endif()
