"""What fp4lab prints on a terminal: tables and help fit its width, and a long command says that it is at work.

    python3 tests/help/terminal_test.py PROGRAM
"""

import fcntl
import itertools
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import termios

TABLES = (["dialects"], ["formats"], ["data", "list"])
HELP = (["--help"], ["verify", "--help"], ["study", "--help"], ["train", "--help"])
SLOW = ["cases", "--mutation-report", "--level", "thorough"]
END = b"\0end"
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)


def on_terminal(command, columns=80, output_on_terminal=True):
    """What a terminal of so many columns receives, and what goes past it.

    The test holds the terminal open itself and writes END after the command's last byte: a terminal that the
    command alone held may lose what was not yet read.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=theirs,
                               stdout=theirs if output_on_terminal else subprocess.PIPE)  # fmt: skip
    received, ended = b"", False
    while not received.endswith(END):
        if select.select([ours], [], [], 0.05)[0]:
            received += os.read(ours, 65536)
        elif not ended and process.poll() is not None:
            os.write(theirs, END)
            ended = True
    past = b"" if output_on_terminal else process.stdout.read()
    check(process.wait() == 0, f"{command}: exit code {process.returncode}")
    os.close(theirs)
    os.close(ours)
    return received.removesuffix(END).decode().replace("\r\n", "\n"), past.decode()


def first_difference(shown, piped):
    """The first line that differs, for a message."""
    for ours, theirs in itertools.zip_longest(shown.split("\n"), piped.split("\n")):
        if ours != theirs:
            return f"{ours!r} instead of {theirs!r}"
    return "none"


def without_working(text):
    """Without the line of a command at work, which a loaded machine shows where an idle one does not."""
    return re.sub(r"\r\x1b\[K(fp4lab [\w ]+: \d+:\d\d[^\r\n]*)?", "", text)


def shown_on_terminal(command, columns):
    return without_working(on_terminal(command, columns)[0])


def widest(text):
    return max(len(line) for line in text.split("\n"))


def check_tables(program):
    for words in TABLES:
        piped = subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout
        for columns in (80, 120):
            shown = shown_on_terminal([program, *words], columns)
            check(widest(shown) <= columns, f"{words}: {widest(shown)} columns on a terminal of {columns}")
            first = [line.split()[0] for line in piped.split("\n") if line.strip()]
            check(first[0] in shown, f"{words}: the first row is gone")
        wide = shown_on_terminal([program, *words], 2000)
        check(wide == piped, f"{words}: a wide terminal shows another table: {first_difference(wide, piped)}")
        narrow = shown_on_terminal([program, *words], 60)
        check(" with --wide)" in narrow, f"{words}: no word on the columns that are left out")
        check(shown_on_terminal([program, *words, "--wide"], 60) == piped, f"{words} --wide is not the whole table")
    explained = shown_on_terminal([program, "dialects", "nvfp4.te"], 80)
    check(widest(explained) <= 80, f"dialects nvfp4.te: {widest(explained)} columns on a terminal of 80")
    names = re.findall(r"^(\S+)  ", shown_on_terminal([program, "dialects"], 80), re.MULTILINE)
    check(len(names) > 150, f"dialects: {len(names)} rows on a terminal")


def check_help(program):
    for words in HELP:
        shown = shown_on_terminal([program, *words], 80)
        options = shown.split("\nExample")[0].split("\n\n")
        for line in (line for part in options for line in part.split("\n") if line.startswith(" " * 30)):
            check(len(line) <= 80, f"{words}: {len(line)} columns: {line}")
        piped = subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout
        check(widest(piped) > 80, f"{words}: lines are broken in a pipe")
        check(" ".join(shown.split()) == " ".join(piped.split()), f"{words}: other words on a terminal")


def check_working(program):
    shown, _ = on_terminal([program, *SLOW])
    line = re.search(r"\r\x1b\[Kfp4lab cases: \d+:\d\d \| \d+ of \d+ wrong kernels", shown)
    check(line, f"a command at work says nothing: {shown[:200]!r}")
    end = shown.rfind("wrong kernels", 0, shown.find("nvfp4.te: "))
    check(shown[end:].find("\r\x1b[K") < shown[end:].find("nvfp4.te: "), "the line of work stays before the output")
    check("\x1b" not in shown[shown.find("nvfp4.te: ") :], "the line of work comes back after the output")
    past, report = on_terminal([program, *SLOW], output_on_terminal=False)
    check(past == "" and report.startswith("nvfp4.te: "), f"in a pipe: {past[:200]!r}")
    log = subprocess.run([program, *SLOW], capture_output=True, text=True)
    check(log.stderr == "" and log.stdout == report, f"in a log: {log.stderr[:200]!r}")


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    check_tables(program)
    check_help(program)
    check_working(program)
    print("\n".join(failures) or f"{len(TABLES)} tables and {len(HELP)} help texts fit")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
