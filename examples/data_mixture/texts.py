"""The texts: five sources and a target from Debian packages, and one source that is spoiled on purpose.

``python -m examples.data_mixture.texts --out texts.safetensors`` packs them into one file, to be carried to a machine
without the packages.
"""

from __future__ import annotations

import argparse
import gzip
import html
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

LIMIT = 4_000_000
"""The most bytes of a source: more than a small model sees of it, and all of them together are quick to carry."""
PIECE = 1 << 16
"""A long text is thinned to pieces of this size, evenly spaced: a dictionary should not end at C."""
BLOCK = 1 << 13
"""The target is dealt out in blocks of this size: several entries each, and every part sees the whole alphabet."""
DEAL = ("trusted", "test", "test", "test", "validation", "test", "test", "test")
"""Where each of eight blocks in a row goes."""
INSTALLED = Path("/var/lib/dpkg/info")
"""Where Debian lists the files of each package."""

TURNS = ("BI", "BR", "IB", "IR", "RB", "RI", "SB")
"""Macros that set their arguments in two fonts in turns, with no space between."""
FONTS = ("B", "I", "SM", "UR", "MT")
"""Macros that set their arguments as they are."""
BREAKS = {"SH": None, "SS": None, "IP": 1, "TP": 0, "TQ": 0, "PP": 0, "P": 0, "LP": 0, "HP": 0, "sp": 0, "br": 0}
"""Macros that begin a paragraph, and how many of their arguments are text."""
LINES = {"nf": "\n", "EX": "\n", "TS": "\n", "fi": " ", "EE": " ", "TE": " "}
"""Macros that begin and end what is shown line by line; the lines of all else are filled."""
ARGUMENT = re.compile(r'"((?:[^"]|"")*)"|((?:\\.|[^\s\\])+)')
ESCAPES = {"-": "-", "e": "\\", " ": " ", "~": " ", "0": " ", "t": "\t", "'": "'", "`": "`", ".": "."}
"""What follows a backslash; the others mark places and widths."""
GLYPHS = dict.fromkeys(("aq", "oq", "cq"), "'") | dict.fromkeys(("dq", "lq", "rq"), '"') | {"bu": "*", "em": "—"}
GLYPHS |= {"en": "-", "mu": "x", "ha": "^", "ti": "~", "ga": "`", "rs": "\\", "->": "→", "<=": "≤", ">=": "≥"}
"""Characters by their names of two letters; others are left out."""
ESCAPE = re.compile(
    r"\\(?:f(?:\(..|\[[^]]*\]|.)|s[+-]?\d+|\*(?:\(..|\[[^]]*\]|.)|\((..)|\[([^]]*)\]|[hvwZDl]'[^']*'|(.))"
)

TYPEWRITER = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--"})
TYPEWRITER |= dict.fromkeys(range(0x2500, 0x2580), " ")
"""Else the target differs from the sources first of all in the bytes of its quotes and dashes, and of drawn tables."""

UNSEEN = re.compile(
    r"<head\b.*?</head>|<(script|style)\b.*?</\1>|<!--.*?-->"
    r'|<ul class="docnav.*?</ul>|<div id="banner">.*?</div>|<div id="book-navigation.*',
    re.DOTALL,
)
"""What a reader of a page does not see, and the links between the pages."""
MARK = re.compile(r"\[[^]\n]*(?:Webster|WordNet|PJC)[^]\n]*\]")
"""Which edition each paragraph of the dictionary is from."""


class Texts(NamedTuple):
    """The sources by name, in alphabetical order, and the three parts of the target: all of them bytes."""

    sources: dict[str, Tensor]
    trusted: Tensor
    validation: Tensor
    test: Tensor


def tidy(text: str) -> str:
    """Typewriter's quotes, no drawn tables, one space between words, at most one empty line in a row."""
    lines = "\n".join(" ".join(line.split()) for line in text.translate(TYPEWRITER).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n\n"


def unescaped(line: str) -> str:
    """A line of roff with its escapes turned into characters."""

    def character(found: re.Match[str]) -> str:
        glyph, single = found[1] or found[2], found[3]
        if glyph:
            return chr(int(glyph[1:], 16)) if re.fullmatch("u[0-9A-F]{4,6}", glyph) else GLYPHS.get(glyph, "")
        return ESCAPES.get(single or "", "")

    return ESCAPE.sub(character, re.sub(r'\\["#].*', "", line))


def from_roff(page: str) -> str:
    """A manual page without its markup; nothing of a page that only names another one."""
    if not re.search(r"^\.TH ", page, re.MULTILINE):
        return ""
    page = re.sub(r"^\.TS.*?\.[ \t]*$", ".TS", page, flags=re.MULTILINE | re.DOTALL)  # the format of a table
    text, between = "", " "
    for line in page.split("\n"):
        macro = re.match(r"[.'][ \t]*(\S*)(.*)", line)
        name, rest = macro.groups() if macro else ("", line)
        words = [unescaped(quoted.replace('""', '"') or plain) for quoted, plain in ARGUMENT.findall(rest)]
        if macro is None:
            text += between + re.sub(r"^(T\{|[_=]$)|^T\}", "", unescaped(line))
        elif name in BREAKS:
            text += "\n\n" + " ".join(words[: BREAKS[name]]) + "\n" * name.startswith("S")
        elif name in TURNS or name in FONTS:
            text += between + ("" if name in TURNS else " ").join(words)
        elif name in LINES:
            between = LINES[name]
    return tidy(text)


def from_html(page: str) -> str:
    """What a reader of a page sees."""
    page = UNSEEN.sub("", page)
    page = re.sub(r"</(p|div|h\d|pre|ul|ol|dl|table|blockquote)>", "\n\n", page)
    page = re.sub(r"<br\b[^>]*>|</(li|dt|dd|tr)>", "\n", page)
    return tidy(html.unescape(re.sub(r"<[^>]*>", "", page)))


def from_dictionary(text: str) -> str:
    r"""The entries of the dictionary, without pronunciations such as \Cal"o*rie\ and marks of their editions."""
    text = text[text.index("\nA \\A") :] if "\nA \\A" in text else text  # a licence stands before the letter A
    return tidy(MARK.sub("", re.sub(r" \\[^\\\n]*(?:\n[^\\\n]*)?\\", "", text)))


def from_fortunes(text: str) -> str:
    """The sayings of a file, without the signs between them and letters struck over."""
    return tidy(re.sub(r"^%$", "", re.sub(".\b", "", text), flags=re.MULTILINE))


class Source(NamedTuple):
    """The packages of a source, those of their files that hold it, and how these are cleaned."""

    packages: tuple[str, ...]
    files: str
    clean: Callable[[str], str]


SOURCES = {
    "anarchism": Source(("anarchism",), r"/doc/anarchism/html/.*\.html$", from_html),
    "dictionary": Source(("dict-gcide",), r"gcide\.dict\.dz$", from_dictionary),
    "fortunes": Source(("fortunes", "fortunes-min"), r"/games/fortunes/[^./]+$", from_fortunes),
    "handbook": Source(("debian-handbook",), r"/html/en-US/[^/]*\.html$", from_html),
    "manual": Source(("manpages", "manpages-dev"), r"/man/man./.*\.gz$", from_roff),
}
TARGET = Source(("jargon-text",), r"jargon\.txt\.gz$", tidy)


def pages(source: Source) -> Iterator[tuple[Path, str]]:
    """The files of an installed source, cleaned."""
    listed = "\n".join((INSTALLED / f"{package}.list").read_text() for package in source.packages).split("\n")
    for path in sorted(Path(name) for name in listed if re.search(source.files, name)):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            page = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            yield path, source.clean(page.decode(errors="replace"))


def cleaned(source: Source) -> Tensor:
    """The bytes of an installed source."""
    text = "".join(page for _, page in pages(source))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def thinned(text: Tensor, limit: int | None) -> Tensor:
    """Evenly spaced pieces of a text that is longer than the limit."""
    if limit is None or len(text) <= limit:
        return text
    pieces = text.split(min(PIECE, limit))[:-1]
    count = limit // len(pieces[0])
    return torch.cat([pieces[i * len(pieces) // count] for i in range(count)])


def dealt(target: Tensor) -> dict[str, Tensor]:
    """The parts of the target, in turns of whole blocks."""
    parts: dict[str, list[Tensor]] = {name: [] for name in DEAL}
    for i, block in enumerate(target.split(BLOCK)):
        parts[DEAL[i % len(DEAL)]].append(block)
    return {name: torch.cat(blocks) for name, blocks in parts.items()}


def spoiled(sources: dict[str, Tensor], limit: int | None) -> Tensor:
    """The bytes of all sources in random order: as frequent as in text, and nothing to learn from beyond that."""
    joined = torch.cat(list(sources.values()))
    order = torch.randperm(len(joined), generator=torch.Generator().manual_seed(0))
    return joined[order[:limit]]


def load(limit: int | None = LIMIT) -> Texts:
    """The texts of the installed packages, with at most so many bytes of each source."""
    require_installed()
    sources = {name: thinned(cleaned(source), limit) for name, source in SOURCES.items()}
    return Texts(sources | {"spoiled": spoiled(sources, limit)}, **dealt(cleaned(TARGET)))


def require_installed() -> None:
    """Say which packages are missing."""
    wanted = [package for source in (*SOURCES.values(), TARGET) for package in source.packages]
    missing = " ".join(package for package in wanted if not (INSTALLED / f"{package}.list").exists())
    if missing:
        raise FileNotFoundError(
            f"texts of packages that are not installed are needed: apt-get install --no-install-recommends {missing}"
        )


def save(texts: Texts, path: Path) -> None:
    """Pack the texts into one file."""
    parts = {name: getattr(texts, name) for name in sorted(set(DEAL))}
    save_file(parts | {f"sources.{name}": text for name, text in texts.sources.items()}, path)


def read(path: Path) -> Texts:
    """The texts of such a file."""
    packed = load_file(path)
    names = sorted(name for name in packed if name.startswith("sources."))
    sources = {name.removeprefix("sources."): packed.pop(name) for name in names}
    return Texts(sources, **packed)


def obtained(path: Path | None) -> Texts:
    """The texts of a file or of the installed packages; a command ends with a sentence where they are missing."""
    try:
        return load() if path is None else read(path)
    except FileNotFoundError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Pack the texts of the installed packages into one file.")
    parser.add_argument("--out", type=Path, required=True)
    path = parser.parse_args().out
    save(obtained(None), path)
    packed = read(path)
    for name, text in (packed.sources | {part: getattr(packed, part) for part in sorted(set(DEAL))}).items():
        print(f"{name:12} {len(text):>9,} bytes")
