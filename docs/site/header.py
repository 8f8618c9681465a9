"""Makes a page of include/leasehold.h: what its comments say, with a heading for each name."""

import re

SECTION = r"/\* -+ (?P<title>[^*]*?) -+ \*/"
ITEM = r"/\*\*(?P<text>.*?)\*/\s*(?P<code>#define [^\n]*|[^;{]*(?:\{[^}]*\}[^;]*)?;)"
NAME = re.compile(r"\b(leasehold_\w+|LEASEHOLD_\w+)")


def page(header):
    opening = re.match(r"/\*(.*?)\*/", header, flags=re.DOTALL)[1]
    found = list(re.finditer(f"{SECTION}|{ITEM}", header, flags=re.DOTALL))
    names = {name_of(one["code"]) for one in found if one["code"]}
    out = ["# C API", prose(opening, names)]
    for one in found:
        if one["title"]:
            out.append(f"## {one['title']}")
        else:
            name = name_of(one["code"])
            out += [f"### {name}", f"```c\n{one['code']}\n```", prose(one["text"], names - {name})]
    return "\n\n".join(out) + "\n"


def name_of(code):
    """Of a type the last name, of all else the first that is not of a type."""
    if code.startswith("typedef"):
        return NAME.findall(code)[-1]
    function = re.search(r"\b(leasehold_\w+)\(", code)
    return function[1] if function else NAME.search(code)[1]


def prose(comment, names):
    lines = [re.sub(r"^ ?\*? ?", "", line).rstrip() for line in comment.strip("\n").split("\n")]
    out, code = [], []
    for line in [*lines, "."]:
        if line.startswith("    ") or (code and not line):
            code.append(line[4:])
            continue
        if code:
            out += fenced(code)
            code = []
        out.append(linked(line.strip(), names))
    return "\n".join(out[:-1]).strip()


def fenced(lines):
    while not lines[-1]:
        lines.pop()
    language = "c" if any(line.endswith(";") for line in lines) else "text"
    return ["", f"```{language}", *lines, "```", ""]


def linked(line, names):
    """Names are code, and lead to their heading. What looks like Markdown in a comment is not."""

    def word(found):
        text = found[0].strip("`")
        name = text.split("(")[0]
        return f"[`{text}`](#{name.lower()})" if name in names else f"`{text}`"

    parts = re.split(r"(`[^`]+`|\bleasehold_\w+(?:\(\))?|\bLEASEHOLD_\w+)", line)
    return "".join(
        re.sub(r".*", word, part, count=1) if at % 2 else re.sub(r"([*_<\[])", r"\\\1", part)
        for at, part in enumerate(parts)
    )
