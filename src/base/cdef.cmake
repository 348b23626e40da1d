# Turns the preprocessed header IN into a list of C string literals OUT (one a line).
file(STRINGS ${IN} lines)
set(text "")
foreach(line IN LISTS lines)
  string(REPLACE "\\" "\\\\" line "${line}")
  string(REPLACE "\"" "\\\"" line "${line}")
  string(APPEND text "\"${line}\\n\"\n")
endforeach()
file(WRITE ${OUT} "${text}")
