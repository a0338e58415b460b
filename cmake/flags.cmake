# Flags of the common code. No instruction-set flag may appear here: kernels set theirs per file.
# -ffp-contract=off: a fused multiply-add happens only where a kernel asks for it, so that decoding is
# bit-exact and results do not depend on the compiler's mood (promise 2).
add_compile_options(-Wall -Wextra -Wshadow -Wno-unused-parameter -ffp-contract=off -fno-math-errno
                    -ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections)
if(SLUICE_SANITIZE)
  add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
endif()
if(SLUICE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
