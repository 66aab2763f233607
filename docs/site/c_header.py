"""The declarations of include/horovod.h with their comments, read by libclang.

A comment that ends on the line above a declaration belongs to it and to those that follow without an empty
line; a comment behind a declaration, on the same line, belongs to that one. Any other comment introduces the
section that it is in; a comment such as ``/* ---- faults ---- */`` begins one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from clang.cindex import (  # type: ignore[import-untyped]
    Cursor,
    CursorKind,
    Index,
    TokenKind,
    TranslationUnit,
)

HEADER = Path(__file__).resolve().parents[2] / "include" / "horovod.h"


@dataclass
class Comment:
    first: int  # lines
    last: int
    text: str
    used: bool = False


@dataclass
class Member:
    """Fields on one line of a struct, or a value of an enum."""

    names: list[str]
    code: str
    text: str = ""


@dataclass
class Declaration:
    name: str
    kind: str  # "function", "type" or "macro"
    code: str
    text: str = ""
    members: list[Member] = field(default_factory=list)


@dataclass
class Group:
    """Declarations that share a comment."""

    text: str
    declarations: list[Declaration] = field(default_factory=list)


@dataclass
class Section:
    title: str
    paragraphs: list[str] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)


def clean(comment: str) -> str:
    """The text of a comment; an empty line stays one, and so does the indentation of a list."""
    lines = comment.removeprefix("/*").removesuffix("*/").split("\n")
    return "\n".join(re.sub(r"^\s*\*? ?", "", line, count=1).rstrip() for line in lines).strip()


class Header:
    def __init__(self, path: Path = HEADER) -> None:
        self.lines = path.read_text().splitlines()
        options = TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD | TranslationUnit.PARSE_INCOMPLETE
        # The system's headers are not needed: their types are declared here.
        types = [f"int{bits}_t" for bits in (32, 64)] + ["uint64_t", "size_t"]
        given = "".join(f"typedef long {name};\n" for name in types)
        stubs = [("stub/stdint.h", given), ("stub/stddef.h", "")]
        unit = Index.create().parse(
            str(path), args=["-xc", "-nostdinc", "-Istub"], unsaved_files=stubs, options=options
        )
        errors = [str(each) for each in unit.diagnostics if each.severity >= 3]
        assert not errors, errors
        tokens = unit.get_tokens(extent=unit.cursor.extent)
        self.comments = [
            Comment(token.extent.start.line, token.extent.end.line, clean(token.spelling))
            for token in tokens
            if token.kind == TokenKind.COMMENT
        ]
        self.preface = self.comments[0].text
        self.comments[0].used = True
        self.starts = {c.last: Section(title) for c in self.comments if (title := self._title(c))}
        self.sections = self._sections([c for c in unit.cursor.get_children() if self._counts(c, path)])
        self._add_paragraphs()

    def _counts(self, cursor: Cursor, path: Path) -> bool:
        if not cursor.location.file or cursor.location.file.name != str(path):
            return False
        if cursor.kind == CursorKind.MACRO_DEFINITION:
            return cursor.spelling not in ("HOROVOD_H", "HVD_API")
        return cursor.kind in (CursorKind.FUNCTION_DECL, CursorKind.TYPEDEF_DECL)

    def _sections(self, cursors: list[Cursor]) -> list[Section]:
        cursors.sort(key=lambda cursor: (cursor.extent.start.line, cursor.extent.start.column))
        sections: list[Section] = []
        waiting = sorted(self.starts.items())
        last, group = 0, Group("")
        for cursor in cursors:
            first = int(cursor.extent.start.line)
            while waiting and waiting[0][0] < first:
                sections.append(waiting.pop(0)[1])
            above = self._comment(last=first - 1)
            if above or first != last + 1:
                group = Group(above.text if above else "")
                sections[-1].groups.append(group)
            last = cursor.extent.end.line
            group.declarations.append(self._declaration(cursor, first))
        return sections

    def _title(self, comment: Comment) -> str:
        found = re.fullmatch(r"-+ ([a-z, ]+?) -+", comment.text)
        comment.used = bool(found) or comment.used
        return found.group(1) if found else ""

    def _comment(self, last: int) -> Comment | None:
        """The unused comment that ends on a line, and has its lines for itself."""
        for comment in self.comments:
            own = self.lines[comment.first - 1].startswith("/*")
            if comment.last == last and own and not comment.used:
                comment.used = True
                return comment
        return None

    def _behind(self, line: int) -> str:
        """The comment that starts on a line of a declaration."""
        for comment in self.comments:
            if comment.first == line and not comment.used:
                comment.used = True
                return comment.text
        return ""

    def _declaration(self, cursor: Cursor, first: int) -> Declaration:
        kinds = {CursorKind.FUNCTION_DECL: "function", CursorKind.TYPEDEF_DECL: "type"}
        kind = kinds.get(cursor.kind, "macro")
        end = int(cursor.extent.end.line)
        code = "\n".join(self.lines[first - 1 : end]).replace("HVD_API ", "")
        made = Declaration(cursor.spelling, kind, re.sub(r"\n {8}( +)", r"\n\1", code))
        if "{" in code:
            made.members = self._members(cursor)
            made.code = re.sub(r"\{.*\}", "{ … }", code, flags=re.DOTALL)
        elif kind != "macro" or "/*" in code:
            made.text = self._behind(end)
            made.code = re.sub(r"\s*/\*.*", "", made.code)
        return made

    def _members(self, typedef: Cursor) -> list[Member]:
        body = typedef.underlying_typedef_type.get_declaration()
        members: dict[int, Member] = {}
        for each in body.get_children():
            if each.kind not in (CursorKind.FIELD_DECL, CursorKind.ENUM_CONSTANT_DECL):
                continue
            first, last = int(each.extent.start.line), int(each.extent.end.line)
            if last in members:
                members[last].names.append(each.spelling)
                continue
            line = " ".join(part.strip() for part in self.lines[first - 1 : last])
            code = line.partition("/*")[0].rpartition("{")[2].partition("}")[0].strip().rstrip(",;")
            members[last] = Member([each.spelling], code, self._member_text(first, last))
        return list(members.values())

    def _member_text(self, first: int, last: int) -> str:
        for comment in self.comments:
            in_front = comment.last == first - 1 and self.lines[comment.first - 1].lstrip().startswith("/*")
            if in_front and not comment.used:
                comment.used = True
                return comment.text
        return self._behind(last)

    def _add_paragraphs(self) -> None:
        """Gives the comments that are left to the sections in which they are."""
        starts = sorted(self.starts.items())
        for comment in self.comments:
            if not comment.used:
                inside = [section for line, section in starts if line < comment.first]
                inside[-1].paragraphs.append(comment.text)
