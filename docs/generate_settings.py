"""Writes docs/settings.md from src/base/settings.def: `python docs/generate_settings.py`.

The C preprocessor expands the table, so this page, horovodrun's --help and the engine read the same rows.
"""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "src" / "base" / "settings.def"
PAGE = ROOT / "docs" / "settings.md"

HEAD = """# Settings

Every setting is one row of `src/base/settings.def`; `docs/generate_settings.py` makes this page from them.
[Running a job](running.md#settings) says how to give a value: an option wins over the file, the file over a
variable. The key is the name for `hvd_config_set`.
"""


@dataclass
class Setting:
    """One row of the table; the order of the fields is that of SETTING's arguments."""

    key: str
    kind: str
    default: str
    minimum: int
    maximum: int
    environment: str
    flag: str
    flag_unit: int
    file_key: str
    help: str

    @property
    def range(self) -> str:
        """The accepted values."""
        if self.kind in ("INTEGER", "REAL"):
            return f"{self.minimum} to {self.maximum}"
        return {"BOOLEAN": "yes or no", "LIST": "list"}.get(self.kind, "text")

    @property
    def option(self) -> str:
        """Its options of horovodrun."""
        if not self.flag:
            return ""
        return f"`--{self.flag}`" + (f", `--no-{self.flag}`" if self.kind == "BOOLEAN" else "")


def read(table: Path) -> list[Setting]:
    """The rows of the table, as the preprocessor sees them: each becomes a tuple that Python can read."""
    row = "(#field, #kind, default_text, minimum, maximum, environment, flag, unit, key, help),"
    names = row.strip("(),").replace("#", "")
    source = f'#define SETTING({names}) {row}\n#include "{table}"\n'
    preprocess = ["cc", "-E", "-P", "-x", "c", "-"]
    rows = subprocess.run(preprocess, input=source, capture_output=True, text=True, check=True).stdout
    return [Setting(*fields) for fields in ast.literal_eval(f"[{rows}]")]


def section(title: str, settings: list[Setting]) -> str:
    """One heading and a table."""
    lines = [
        f"## {title}",
        "",
        "| key | variable | option | file | default | range | |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in settings:
        unit = f", in units of {each.flag_unit}" if each.flag_unit > 1 else ""
        unit = ", like the key in a file the opposite of the variable" if each.flag_unit < 0 else unit
        names = f"`{each.key}` | `{each.environment}` | {each.option}{unit}"
        file_key = f"`{each.file_key}`" if each.file_key else ""
        default = f"`{each.default}`" if each.default else "none"
        lines.append(f"| {names} | {file_key} | {default} | {each.range} | {each.help} |")
    return "\n".join(lines) + "\n"


def page(settings: list[Setting]) -> str:
    """The whole page: first the settings of users, then those that the launcher passes to its ranks."""
    chosen = [each for each in settings if each.flag]
    passed = [each for each in settings if not each.flag]
    return "\n".join(
        [
            HEAD,
            section("For users", chosen),
            section("Set by the launcher or a scheduler for each rank", passed),
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(read(TABLE)))
    print(f"wrote {PAGE.relative_to(ROOT)}")
