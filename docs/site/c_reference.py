"""Writes the page about include/horovod.h from its comments."""

from __future__ import annotations

import re

from c_header import Declaration, Group, Header, Section

# A name of the interface, of a setting, or one with an underscore or an arrow, as comments use them.
NAME = re.compile(
    r"`[^`]+`|\b(?:hvd|HVD|HOROVOD|MPI)_\w+(?:->\w+)?\*?|\b[a-z]+_[a-z_]+\b|\b\w+->\w+|\*\w+\b|\b\w+\[[^\]]*\]\)?"
)


class Page:
    def __init__(self, header: Header) -> None:
        self.header = header
        self.anchors: dict[str, str] = {}
        for section in header.sections:
            for group in section.groups:
                for each in group.declarations:
                    self.anchors[each.name] = each.name
                    for member in each.members:
                        if member.code.startswith("HVD_"):
                            self.anchors |= {name: name for name in member.names}

    def text(self) -> str:
        parts = ["# C: horovod.h", self.preface()]
        parts += ["| section | declares |\n|---|---|\n" + "\n".join(map(self.row, self.header.sections))]
        for section in self.header.sections:
            parts += [f"## {title(section)}", *map(self.prose, section.paragraphs)]
            parts += [part for group in section.groups for part in self.group(group)]
        return "\n\n".join(parts) + "\n"

    def preface(self) -> str:
        """The comment at the top, whose second half is a list of rules: ``Errors:     a function …``."""
        text, *rules = re.split(r"\n(?=[A-Z][a-z]+: {2,})", self.header.preface)
        rows = [rule.partition(":") for rule in rules]
        listed = [f"- **{name}**: {self.prose(' '.join(rest.split()))}" for name, _, rest in rows]
        text = self.prose(text.removeprefix("horovod.h - "))
        return text[0].upper() + text[1:] + "\n\n" + "\n".join(listed)

    def row(self, section: Section) -> str:
        names = [each.name for group in section.groups for each in group.declarations]
        links = ", ".join(f"[`{name}`](#{name})" for name in names)
        return f"| [{title(section)}](#{slug(title(section))}) | {links} |"

    def group(self, group: Group) -> list[str]:
        """One heading and text for all its declarations; each has an anchor."""
        names = ", ".join(f"`{each.name}`" for each in group.declarations)
        first, *others = [each.name for each in group.declarations]
        marks = "".join(f'<a id="{name}"></a>' for name in others)
        code = "\n".join(each.code for each in group.declarations)
        parts = [f"### {names} {{#{first}}}", f"{marks}\n\n```c\n{code}\n```".strip(), self.prose(group.text)]
        parts += [self.remark(each, len(group.declarations)) for each in group.declarations]
        parts += [self.members(each) for each in group.declarations if each.members]
        return [part for part in parts if part]

    def remark(self, declaration: Declaration, count: int) -> str:
        if not declaration.text:
            return ""
        name = f"`{declaration.name}`: " if count > 1 else ""
        return f"{name}{self.prose(declaration.text)}"

    def members(self, declaration: Declaration) -> str:
        rows = []
        for member in declaration.members:
            marks = "".join(f'<a id="{name}"></a>' for name in member.names if name in self.anchors)
            rows.append(f"| {marks}`{member.code}` | {self.prose(member.text, flat=True)} |")
        kind = "value" if declaration.code.startswith("typedef enum") else "member"
        return f"| {kind} | |\n|---|---|\n" + "\n".join(rows)

    def prose(self, text: str, flat: bool = False) -> str:
        """A comment as Markdown: names become code, those of the interface links."""
        if flat:
            text = " ".join(text.split()).replace("|", "\\|")
        parts, last = [], 0
        for found in NAME.finditer(text):
            parts += [escape(text[last : found.start()]), self.name(found.group())]
            last = found.end()
        return "".join([*parts, escape(text[last:])])

    def name(self, word: str) -> str:
        code = word if word.startswith("`") else f"`{word}`"
        anchor = self.anchors.get(word.strip("`").partition("->")[0])
        return f"[{code}](#{anchor})" if anchor else code


def escape(text: str) -> str:
    return re.sub(r"([*_<\[\]`])", r"\\\1", text).replace('"', "&quot;")


def title(section: Section) -> str:
    return section.title[0].upper() + section.title[1:]


def slug(text: str) -> str:
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


def page() -> str:
    return Page(Header()).text()
