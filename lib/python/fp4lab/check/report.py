"""What `python -m fp4lab.check` found: comparisons, and the reasons of those that were not made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """One row compared with one package.

    Attributes:
        subject: "mxfp4.floor", or "cast float8_e4m3fn".
        package, version: the distribution and its installed version; version None: it is absent.
        compared, different: numbers of values or of bytes.
        note: the first difference, what was left out, or the reason why nothing was compared.
        unit: "values" or "bytes".
        cases: number of tensors.
    """

    subject: str
    package: str
    version: str | None
    compared: int = 0
    different: int = 0
    note: str = ""
    unit: str = "values"
    cases: int = 0

    @property
    def skipped(self) -> bool:
        return self.compared == 0

    @property
    def agrees(self) -> bool:
        return self.compared > 0 and self.different == 0

    def __str__(self) -> str:
        name = self.package if self.version is None else f"{self.package} {self.version}"
        if self.skipped:
            return f"not compared  {self.subject}: {name}: {self.note}".replace(": : ", ": ")
        tail = f"; {self.note}" if self.note else ""
        if self.agrees:
            return f"agrees        {self.subject}: {name}: {self.compared} {self.unit}{tail}"
        counts = f"{self.different} of {self.compared} {self.unit}"
        return f"DIFFERENT     {self.subject}: {name}: {counts}{tail}"


@dataclass(frozen=True)
class CheckReport:
    """All comparisons; true if none differs and one at least was made."""

    comparisons: tuple[Comparison, ...]

    def __bool__(self) -> bool:
        return any(c.agrees for c in self.comparisons) and not any(
            c.different for c in self.comparisons
        )

    def __str__(self) -> str:
        agree = sum(c.agrees for c in self.comparisons)
        differ = sum(c.different > 0 for c in self.comparisons)
        skipped = sum(c.skipped for c in self.comparisons)
        last = f"{agree} comparisons agree, {differ} differ, {skipped} not made"
        return "\n".join([*map(str, self.comparisons), last])
