#!/usr/bin/env bash
# Verifies a kernel's bytes in a CI job, and reports in Markdown.
#
#   verify.sh pack PACK OPTIONS...        the bytes that OPTIONS name, against a golden pack
#   verify.sh answers PLACE OPTIONS...    answers to the directed cases, against the dialect: what a kernel wrote into
#                                         the pipe behind `fp4lab cases`, or a folder of `fp4lab cases --out-dir`
#
# OPTIONS are those of `fp4lab verify`; of a pack: those of the bytes and their layout. The report has the verdict and,
# where bytes differ, the causes. It is printed, and added to $GITHUB_STEP_SUMMARY where that is set.
# Exit code: 0 equal, 1 different, 2 an error. Needs fp4lab on the PATH.
set -uo pipefail

fail() { echo "error: verify.sh: $*" >&2; exit 2; }

[ $# -ge 2 ] || fail "give pack PACK, or answers PLACE"
kind=$1 place=$2
shift 2
[ "$kind" = pack ] || [ "$kind" = answers ] || fail "$kind is neither pack nor answers"
case ${1:-} in pack | answers) fail "give a pack or answers, not both" ;; esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$kind" = pack ]; then
  given=(--pack "$place")
elif [ -d "$place" ]; then
  given=(--answers "$place" --keep "$work/kept")
else
  given=(--stream "$place" --keep "$work/kept")
fi
fp4lab verify "${given[@]}" "$@" >"$work/verdict" 2>"$work/error"
code=$?

causes() {
  if [ "$kind" = pack ]; then
    fp4lab explain --pack "$place" "$@"
  else
    fp4lab explain --kept "$work/kept"
  fi
}

block() { printf '```text\n%s\n```\n' "$1"; }
report() {
  case $code in
    0) printf '### fp4lab: the bytes are right\n\n'; block "$(cat "$work/verdict")" ;;
    1)
      printf '### fp4lab: the bytes differ\n\n'
      block "$(cat "$work/verdict")"
      printf '\n#### Causes\n\n'
      block "$(causes "$@" 2>&1)"
      ;;
    *) printf '### fp4lab: no verdict\n\n'; block "$(cat "$work/error")" ;;
  esac
}
report "$@" >"$work/report"
cat "$work/report"
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$work/report" >>"$GITHUB_STEP_SUMMARY"
if [ -n "${GITHUB_OUTPUT:-}" ]; then
  case $code in 0) verdict=equal ;; 1) verdict=different ;; *) verdict=error ;; esac
  echo "verdict=$verdict" >>"$GITHUB_OUTPUT"
fi
exit "$code"
