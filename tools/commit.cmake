# Writes the header OUT with the commit of the checkout SOURCE, "-changed" behind it where tracked
# files differ from it. An archive that git wrote has the commit in commit.txt; anywhere else it is
# "unknown". Leaves an equal header as it is.
file(READ ${SOURCE}/tools/commit.txt commit)
string(SUBSTRING "${commit}" 0 12 commit)
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit unknown)
  execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE head
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD RESULT_VARIABLE changed ERROR_QUIET)
    if(changed)
      string(APPEND commit "-changed")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define FP4LAB_COMMIT \"${commit}\"\n")
