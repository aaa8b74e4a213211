#!/bin/sh
# logged.sh LOG COMMAND...: runs the command with its output in the file LOG; shows it on failure.
log=$1
shift
"$@" >"$log" 2>&1 || { status=$?; cat "$log" >&2; exit $status; }
