# Tests that are scripts: the shape of the tree, and what only a whole process can show.
find_package(Python3 COMPONENTS Interpreter REQUIRED)

function(sluice_script_test name)
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${ARGN})
  set_tests_properties(${name} PROPERTIES WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} SKIP_RETURN_CODE 77 TIMEOUT 600
    ENVIRONMENT XDG_STATE_HOME=${CMAKE_BINARY_DIR}/state)
endfunction()

sluice_script_test(layers tools/layers.py)
sluice_script_test(tidy tools/tidy.py)
sluice_script_test(checkers tests/tree/checkers_test.py)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  sluice_script_test(isa_leak tools/isa_leak.py ${CMAKE_BINARY_DIR})
endif()
sluice_script_test(cgroup_run tests/tree/cgroup_run_test.py)
if(TARGET sluice AND NOT SLUICE_SANITIZE)  # shadow memory is no part of the promise
  sluice_script_test(budget_cgroup tests/tree/budget_test.py --sluice $<TARGET_FILE:sluice>)
  set_tests_properties(budget_cgroup PROPERTIES RUN_SERIAL ON)
endif()
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/tree/fault_io_test.py AND TARGET test_io AND NOT SLUICE_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  # A preloaded library cannot sit in front of a sanitizer's.
  set(fault_io_args tests/tree/fault_io_test.py $<TARGET_FILE:test_io>)
  if(TARGET sluice)
    list(APPEND fault_io_args $<TARGET_FILE:sluice>)
  endif()
  sluice_script_test(fault_io ${fault_io_args})
endif()
if(TARGET sluice AND NOT SLUICE_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  sluice_script_test(moe_fault tests/tree/moe_fault_test.py --sluice $<TARGET_FILE:sluice>)
  sluice_script_test(moe_cases tests/tree/moe_cases_test.py --sluice $<TARGET_FILE:sluice>)
endif()
