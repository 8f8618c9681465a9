"""What turns the pages into the site. The pages stay plain Markdown, which a forge shows as it is.

- The navigation in mkdocs.yml names pages by patterns, too.
- A link out of docs/ leads to the file on the forge.
- Neighbouring headings that differ only in the language become tabs.
- Lists, tables and blocks are indented as Python-Markdown reads them, which is stricter than a forge.
- What only tests read (comments, `run` and the like behind a block's language) goes.
- Diagrams are drawn by the script that docs/build has fetched, on the pages that have any.
"""

import fnmatch
import importlib.util
import json
import logging
import os
import re
import shutil
from pathlib import Path

from markdown.extensions import toc
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

# mkdocs counts these warnings, and --strict fails on them.
log = logging.getLogger("mkdocs.plugins.leasehold")

ROOT = Path(__file__).resolve().parents[2]
# mkdocs runs this file as it is, outside of any package.
spec = importlib.util.spec_from_file_location("c_header", ROOT / "docs/site/header.py")
c_header = importlib.util.module_from_spec(spec)
spec.loader.exec_module(c_header)
LANGUAGE = r"(?:command line|shell|Shell|Python|Java|Rust|C\+\+|C)"
TAB = re.compile(
    rf"(?P<lead>.*?)(?:\b(?:in|from|In|From) (?:the )?)?"
    rf"(?P<label>{LANGUAGE}(?: and {LANGUAGE})?)(?P<tail>, with .*)?"
)
FENCE = re.compile(r"^( *)(```+|~~~+)(.*)$")
ITEM = re.compile(r"^( *)([-*+]|\d+[.)])( +)(?=\S)")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
#: Who searches mostly has a task. A long page of internals has every word.
BOOSTS = {
    "how-to": 4,
    "move-from": 2,
    "choose": 2,
    "design.md": 0.2,
    "protocol.md": 0.2,
}
MERMAID = "assets/mermaid.min.js"
APIS = {
    "Rust": "rust/leasehold/index.html",
    "Python": "python/index.html",
    "Java": "java/index.html",
}


def manifest(key):
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(rf'^{key} = "(.*)"$', text, flags=re.MULTILINE)[1]


def unique(anchor, taken, *_):
    """Of headings with the same words, the forge numbers the second one 1."""
    found, count = anchor, 0
    while found in taken:
        count += 1
        found = f"{anchor}-{count}"
    taken.add(found)
    return found


toc.unique = unique


def on_config(config):
    config.extra["version"] = manifest("version")
    config.repo_url = manifest("repository")
    config.site_description = manifest("description")
    return config


#: A page, and the anchor of a heading to which another one leads.
linked_headings: set[tuple[Path, str]] = set()


# ---- which pages, in which order ---------------------------------------------------------------


def on_files(files, config):
    script = os.environ.get("SITE_MERMAID")
    if script:
        files.append(File.generated(config, MERMAID, abs_src_path=script))
    add_apis(files, config)
    pages = [file.src_uri for file in files.documentation_pages()]
    config.nav = expanded(config.nav, pages, set(named(config.nav)))
    linked_headings.clear()
    for page in pages:
        path = ROOT / "docs" / page
        for _, link, _ in LINK.findall(path.read_text() if path.exists() else ""):
            target, _, anchor = link.partition("#")
            linked_headings.add(((path.parent / target).resolve() if target else path, anchor))
    return files


def add_apis(files, config):
    """The header as a page, and a page that leads to it and to what docs/build --api has made."""
    header = (ROOT / "include/leasehold.h").read_text()
    text = "# API references\n\n"
    made = os.environ.get("SITE_API")
    for language, start in APIS.items() if made else ():
        files.append(File.generated(config, f"api/{start}", abs_src_path=f"{made}/{start}"))
        text += f"- [{language}]({start})\n"
    text += "- [C](c.md)\n\n[Languages](../languages.md) says how each is installed.\n"
    files.append(File.generated(config, "api/README.md", content=text))
    files.append(File.generated(config, "api/c.md", content=c_header.page(header)))


def on_post_build(config):
    made = os.environ.get("SITE_API")
    if made:
        shutil.copytree(made, Path(config.site_dir, "api"), dirs_exist_ok=True)


def named(nav):
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values():
                yield from named([value] if isinstance(value, str) else value)


def expanded(nav, pages, taken):
    out = []
    for entry in nav:
        if isinstance(entry, dict):
            out += [
                {title: value if isinstance(value, str) else expanded(value, pages, taken)}
                for title, value in entry.items()
            ]
        elif "*" in entry:
            found = [page for page in pages if matches(page, entry) and page not in taken]
            out += in_order(found)
        else:
            out.append(entry)
    return [entry for entry in out if not (isinstance(entry, dict) and [] in entry.values())]


def matches(page, pattern):
    return page.count("/") == pattern.count("/") and fnmatch.fnmatchcase(page, pattern)


def in_order(pages):
    first = next((page for page in pages if page.endswith("README.md")), None)
    path = ROOT / "docs" / (first or "")
    links = LINK.findall(path.read_text()) if path.is_file() else []
    order = [str(Path(first).parent / target) for _, target, _ in links]
    return sorted(
        pages,
        key=lambda page: (
            page != first,
            order.index(page) if page in order else len(order),
            page,
        ),
    )


# ---- from the forge's Markdown to this one -----------------------------------------------------


def on_page_markdown(markdown, page, config, files):
    if page.file.abs_src_path is None:
        return markdown
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    page.meta["search"] = {"boost": BOOSTS.get(page.file.src_uri.split("/")[0], 1)}
    markdown = re.sub(r"^<!-- calculator -->$", calculator_at(page), markdown, flags=re.MULTILINE)
    markdown = re.sub(r"^<!-- .*?-->\n", "", markdown, flags=re.DOTALL | re.MULTILINE)
    path = Path(page.file.abs_src_path)
    kept = {anchor for target, anchor in linked_headings if target == path}
    lines = tabs(reindented(markdown.split("\n")), kept)
    folder = path.parent
    return "\n".join(
        line if is_code else LINK.sub(lambda link: linked(link, folder, config), line)
        for line, is_code in with_code(lines)
    )


def calculator_at(page):
    """The form is made by the script; without it, the page has its formula and its table."""
    script = get_relative_url("assets/ttl.js", page.url)
    return f'<div id="ttl-calculator"></div>\n<script defer src="{script}"></script>'


def with_code(lines):
    """Each line, and whether it is within a fenced block."""
    closing = None
    for line in lines:
        fence = FENCE.match(line)
        if closing:
            yield line, True
            if fence and fence[2].startswith(closing) and not fence[3].strip():
                closing = None
        else:
            closing = fence[2] if fence else None
            yield line, bool(fence)


def linked(link, folder, config):
    target, _, anchor = link[2].partition("#")
    if not target or "://" in target or target.startswith("mailto:"):
        return link[0]
    path = (folder / target).resolve()
    if path.is_relative_to(ROOT / "docs"):
        return link[0]
    if not path.exists():
        log.warning("%s: there is no %s", folder, target)
    kind = "tree" if path.is_dir() else "blob"
    url = f"{config.repo_url}/{kind}/main/{path.relative_to(ROOT).as_posix()}"
    return f"{link[1]}{url}{'#' if anchor else ''}{anchor}{link[3]}"


def info(text):
    """What stands behind the fence: the language alone, and that a block is what another prints."""
    words = text.split()
    if not words:
        return "text"
    language = words[0].split(",")[0]
    return f'{language} title="prints"' if "output" in words[1:] else language


def reindented(lines):
    """A list's content is indented by four columns for each level, and begins after an empty line."""
    out, items, shift, before = [], [], 0, ""
    for line, is_code in with_code(lines):
        fence = FENCE.match(line)
        opens = is_code and fence and before != "code"
        indent = len(line) - len(line.lstrip(" "))
        if not line.strip():
            out.append("")
            before = before if before == "code" else ""
            continue
        if is_code and not opens:
            out.append(" " * max(indent + shift, 0) + line.lstrip(" "))
            closes = fence and not fence[3].strip()
            before = "fence" if closes else "code"
            continue
        item = None if is_code else ITEM.match(line)
        if item or before != "text" or opens:
            while items and indent < items[-1]:
                items.pop()
        level = 4 * len(items)
        if item:
            if not items and before == "text":
                out.append("")
            out.append(" " * level + f"{item[2]} " + line[item.end() :])
            items.append(item.end())
            before = "item"
        elif opens:
            if before:
                out.append("")
            shift = level - indent
            out.append(" " * level + fence[2] + info(fence[3]))
            before = "code"
        else:
            is_row = line.lstrip().startswith("|")
            if is_row and before in ("text", "item"):
                out.append("")
            out.append(" " * level + line.lstrip(" ") if items else line)
            before = "row" if is_row else "text"
    return out


def tabs(lines, kept):
    """A run of sections whose headings differ in the language alone becomes a set of tabs, unless a
    link leads to one of them: a tab has no anchor."""
    heads = []
    for at, (line, is_code) in enumerate(with_code(lines)):
        heading = None if is_code else re.match(r"(#+) (.*)$", line)
        if heading:
            heads.append((at, len(heading[1]), heading[2]))
    heads.append((len(lines), 1, ""))
    sections = [(*head, after[0]) for head, after in zip(heads, heads[1:])]
    out, at, index = lines[: heads[0][0]], heads[0][0], 0
    while index < len(sections):
        run = run_at(sections, index)
        anchors = {anchor_of(title) for _, _, title, _ in run}
        if len(run) > 1 and not anchors & kept:
            _, level, title, _ = run[0]
            lead = TAB.fullmatch(title)["lead"].strip()
            if lead:
                out += [f"{'#' * level} {lead}", ""]
            for start, _, title, end in run:
                found = TAB.fullmatch(title)
                label = found["label"].replace("shell", "Shell") + (found["tail"] or "").replace(
                    "`", ""
                )
                out += [f'=== "{label}"', ""]
                out += [f"    {line}" if line else "" for line in lines[start + 1 : end]]
            index += len(run)
        else:
            count = len(run) or 1
            out += lines[sections[index][0] : sections[index + count - 1][3]]
            index += count
    return out


def anchor_of(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def run_at(sections, index):
    run, lead = [], None
    for section in sections[index:]:
        _, level, title, _ = section
        found = TAB.fullmatch(title)
        if not found or (run and (level, found["lead"]) != (run[0][1], lead)):
            # What has sections of its own is too much for a tab.
            if run and level > run[0][1]:
                run.pop()
            break
        lead = found["lead"]
        run.append(section)
    return run


# ---- what has become of it ---------------------------------------------------------------------


def on_page_content(html, page, config, files):
    """Markdown that the forge shows and this one does not know would stand there as it is."""
    text = re.sub(r"<(pre|code)\b.*?</\1>", "", html, flags=re.DOTALL)
    for left in re.findall(r"(?m)(?:^|<p>)(?:```.*|[-*] .*|\| ?-+.*|#+ .*|=== .*)$", text):
        log.warning("%s: this was not understood: %s", page.file.src_uri, left)
    return html


def on_post_page(output, page, config):
    if 'class="mermaid"' in output:
        script = get_relative_url(MERMAID, page.url)
        # Before the theme's script, which would fetch one from elsewhere.
        output = output.replace(
            "</article>", f"</article>\n<script src={json.dumps(script)}></script>", 1
        )
    return output
