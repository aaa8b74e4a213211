#!/bin/sh
# logged.sh LOG COMMAND...: runs COMMAND with its output in LOG, and prints LOG if COMMAND fails.
log=$1
shift
"$@" >"$log" 2>&1 || { status=$?; cat "$log" >&2; exit $status; }
