"""python -m fp4lab.te_jax [--threads N] [--not-strict] [--show-calls] (-m MODULE | FILE) ARGUMENTS...

Runs a Python program with Transformer Engine's JAX calls served by libfp4lab on the CPU.
"""

import argparse
import runpy
import sys

from . import calls, enable


def main() -> None:
    own, rest = sys.argv[1:], []
    for i, argument in enumerate(own):
        if argument == "-m" or not argument.startswith("-") and (i == 0 or own[i - 1] != "--threads"):
            own, rest = own[:i], own[i:]
            break
    parser = argparse.ArgumentParser("python -m fp4lab.te_jax", usage=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, help="threads of one call (OMP_NUM_THREADS, else all)")
    parser.add_argument("--not-strict", action="store_true", help="accept any Transformer Engine")
    parser.add_argument("--show-calls", action="store_true", help="print the calls at the end")
    options = parser.parse_args(own)
    if not rest or rest == ["-m"]:
        parser.error("name a program: -m MODULE or FILE")
    try:
        enable(threads=options.threads, strict=not options.not_strict)
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    try:
        if rest[0] == "-m":
            sys.argv = rest[1:]
            runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = rest
            runpy.run_path(rest[0], run_name="__main__")
    finally:
        if options.show_calls:
            for call, count in sorted(calls().items()):
                print(f"fp4lab.te_jax: {count:6d}  {call}", file=sys.stderr)


main()
