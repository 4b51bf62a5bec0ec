"""Reading a shell script far enough to say what its lines do: words, variables, statements. Nothing is run."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_training.errors import InputError, Problem

__all__ = ["Expansion", "Statement", "Word", "expand", "read_statements", "split_words"]

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]")
_DEFAULT = re.compile(r"^([A-Za-z_]\w*)(:?[-=])(.*)$", re.DOTALL)
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_OPERATORS = (
    "&&",
    "||",
    ";;",
    "|&",
    "&>>",
    "&>",
    ">>",
    ">&",
    "<&",
    "|",
    ";",
    "&",
    "(",
    ")",
    "<",
    ">",
)
_OPENING = {
    "if": "fi",
    "for": "done",
    "while": "done",
    "until": "done",
    "case": "esac",
    "select": "done",
    "{": "}",
}
_FUNCTION = re.compile(r"^(?:function\s+\w[\w-]*\s*(?:\(\s*\))?|\w[\w-]*\s*\(\s*\))\s*(\{)?")  # fmt: skip
_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a shell would put in: `NAME`, `NAME:-default`, `(command)`, `((sum))`."""

    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command: literal text and expansions."""

    parts: Sequence[str | Expansion]
    source: str
    """As it is written."""

    @property
    def literal(self) -> str | None:
        """Return its text; None where a shell would put something in."""
        if all(isinstance(part, str) for part in self.parts):
            return "".join(str(part) for part in self.parts)
        return None


@dataclass(slots=True)
class Statement:
    """One statement of a script, perhaps of several lines."""

    line: int
    text: str
    words: Sequence[Word] = ()
    """Of its one command; empty where it is more than that."""
    redirects: Sequence[str] = ()
    """`> file`, `| tee file`, as written."""
    after: str = ""
    """What joins it to the next: `&`, `&&`, `||`, or nothing."""
    comments: list[str] = field(default_factory=list)
    """Comment lines above it."""

    @property
    def plain(self) -> bool:
        return bool(self.words)


# --- words --------------------------------------------------------------------------------------


def split_words(text: str) -> list[Word | str]:
    """Return words and operators (plain text); raises `InputError` where quotes do not end."""
    found: list[Word | str] = []
    parts: list[str | Expansion] = []
    begun: int | None = None
    i, quoted = 0, False

    def end(at: int) -> None:
        nonlocal begun
        if begun is not None:
            found.append(Word(_joined(parts), text[begun:at]))
            parts.clear()
            begun = None

    while i < len(text):
        letter = text[i]
        if letter == "\\" and i + 1 < len(text):
            if text[i + 1] != "\n":
                begun = i if begun is None else begun
                keeps = quoted and text[i + 1] not in '$`"\\'
                parts.append(text[i : i + 2] if keeps else text[i + 1])
            i += 2
        elif letter == '"':
            begun = i if begun is None else begun
            quoted = not quoted
            parts.append("")
            i += 1
        elif letter in "$`" and (stop := _expansion_end(text, i)) > i + 1:
            begun = i if begun is None else begun
            parts.append(Expansion(_bare(text[i:stop]), quoted))
            i = stop
        elif quoted:
            parts.append(letter)
            i += 1
        elif letter == "'":
            begun = i if begun is None else begun
            stop = text.find("'", i + 1)
            if stop < 0:
                raise _unended("'")
            parts.append(text[i + 1 : stop])
            i = stop + 1
        elif letter.isspace():
            end(i)
            if letter == "\n":
                found.append("\n")
            i += 1
        elif letter == "#" and begun is None:
            stop = text.find("\n", i)
            i = len(text) if stop < 0 else stop
        elif sign := next((each for each in _OPERATORS if text.startswith(each, i)), ""):
            number = "".join(map(str, parts)) if begun is not None else ""
            if sign[0] in "<>" and number.isdecimal() and begun is not None:
                parts.clear()
                begun = None
                sign_text = number + sign
            else:
                end(i)
                sign_text = sign
            found.append(sign_text)
            i += len(sign)
        else:
            begun = i if begun is None else begun
            parts.append(letter)
            i += 1
    if quoted:
        raise _unended('"')
    end(len(text))
    return found


def _unended(quote: str) -> InputError:
    message = f"a quote ({quote}) does not end"
    return InputError([Problem(code="syntax", field="", message=message)])


def _joined(parts: Sequence[str | Expansion]) -> list[str | Expansion]:
    found: list[str | Expansion] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return found


def _expansion_end(text: str, i: int) -> int:
    """Return where the expansion that begins at `i` ends; `i` where there is none."""
    if text[i] == "`":
        stop = text.find("`", i + 1)
        if stop < 0:
            raise _unended("`")
        return stop + 1
    following = text[i + 1 : i + 2]
    if following in ("(", "{"):
        closing, depth = {"(": ")", "{": "}"}[following], 0
        for j in range(i + 1, len(text)):
            depth += (text[j] == following) - (text[j] == closing)
            if depth == 0:
                return j + 1
        raise _unended(f"${following}")
    name = _NAME.match(text, i + 1)
    return name.end() if name else i


def _bare(text: str) -> str:
    if text.startswith("`"):
        return f"({text[1:-1]})"
    return text[2:-1] if text.startswith("${") else text[1:]


def expand(word: Word, variables: Mapping[str, str | None]) -> tuple[list[str], set[str]]:
    """Return the words that a shell would make of one, and the names (or commands) whose value is not known.

    A variable that is known and None is one of these, too.
    """
    unknown: set[str] = set()
    found: list[str] = [""]
    begun = False
    for part in word.parts:
        if isinstance(part, str):
            found[-1] += part
            begun = True
            continue
        value = _value(part.text, variables, unknown)
        if part.quoted:
            found[-1] += value
            begun = True
            continue
        pieces = value.split()
        if value[:1].isspace() and found[-1]:
            found.append("")
        if pieces:
            found[-1] += pieces[0]
            found += pieces[1:]
            begun = True
            if value[-1:].isspace():
                found.append("")
    return ([each for each in found if each] or ([""] if begun else [])), unknown


def _value(text: str, variables: Mapping[str, str | None], unknown: set[str]) -> str:
    if text.startswith("((") and text.endswith("))"):
        total = _sum(text[2:-2], variables)
        if total is None:
            unknown.add(f"${text}")
        return "" if total is None else str(total)
    if text.startswith("("):
        unknown.add(f"${text}")
        return ""
    default = _DEFAULT.match(text)
    name = default[1] if default else text
    value = variables.get(name)
    if value is not None and (value or not default or ":" not in default[2]):
        return value
    if default and name not in variables:
        inside = [
            piece
            for each in split_words(default[3].replace(" ", "\\ "))
            if isinstance(each, Word)
            for piece in [expand(each, variables)]
        ]
        for _, lacking in inside:
            unknown |= lacking
        return "".join(" ".join(words) for words, _ in inside)
    unknown.add(f"${name}")
    return ""


def _sum(text: str, variables: Mapping[str, str | None]) -> int | None:
    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return int(variables.get(node.id) or "")
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return int(_BINARY[type(node.op)](value(node.left), value(node.right)))
        raise ValueError(text)

    plain = re.sub(r"\$\{?(\w+)\}?", r"\1", text).strip().replace("/", "//")
    try:
        return value(ast.parse(plain, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None


# --- statements ---------------------------------------------------------------------------------


def read_statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a script, with the comments above them; raises `InputError` for quotes that do not end."""
    comments: list[str] = []
    for number, whole in _logical_lines(text):
        bare = whole.strip()
        if not bare:
            continue
        if bare.startswith("#"):
            if not bare.startswith(("#!", "#SBATCH")):
                comments.append(bare)
            continue
        first = True
        for statement in _statements_of(number, whole):
            if first:
                statement.comments = comments
                comments = []
                first = False
            yield statement


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with those that continue them: backslashes, open quotes, here documents, blocks."""
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        begun, whole = i, lines[i]
        i += 1
        if whole.strip().startswith("#"):
            yield begun + 1, whole
            continue
        while not _is_whole(whole):
            if i >= len(lines):
                message = "a quote, a block or a line that is continued does not end"
                raise InputError(
                    [Problem(code="syntax", field="", message=message, line=begun + 1)]
                )
            whole += "\n" + lines[i]
            i += 1
        yield begun + 1, whole


def _is_whole(text: str) -> bool:
    for here in _HEREDOC.finditer(text):
        if not re.search(rf"^\s*{here[2]}\s*$", text[here.end() :], re.MULTILINE):
            return False
    if _HEREDOC.search(text):
        return True
    if re.search(r"(?:^|[^\\])(?:\\\\)*\\\s*$", text):
        return False
    try:
        words = split_words(text)
    except InputError:
        return False
    depth: list[str] = []
    opens = 0
    starts = True
    for word in words:
        if isinstance(word, str):
            opens += {"(": 1, ")": -1}.get(word, 0)
            starts = word not in (">", ">>", "<", "&>")
            continue
        name = word.literal or ""
        if starts and name in _OPENING:
            depth.append(_OPENING[name])
        elif depth and name == depth[-1]:
            depth.pop()
        starts = name in ("then", "do", "else", "elif", "!", "{") or name in _OPENING
    function = _FUNCTION.match(text.strip())
    if function and not function[1] and "{" not in text:
        return False
    # `case` has brackets that nothing opens
    in_case = any(isinstance(word, Word) and word.literal == "case" for word in words)
    last = words[-1] if words else ""
    return not depth and (opens <= 0 or in_case) and last not in ("|", "&&", "||")


def _statements_of(number: int, text: str) -> Iterator[Statement]:
    if _HEREDOC.search(text):
        yield Statement(number, text)
        return
    words = split_words(text)
    literal = next((each.literal for each in words if isinstance(each, Word)), None) or ""
    compound = literal in _OPENING or literal in ("function", "trap", "[[") or _FUNCTION.match(text)
    braces = any(isinstance(each, Word) and each.literal == "{" for each in words)
    if compound or braces or any(each in ("(", ")", ";;") for each in words):
        yield Statement(number, text, _array(words))
        return
    command: list[Word] = []
    redirects: list[str] = []
    line = number
    ending = iter([*words, ";"])
    piped = False
    for each in ending:
        if isinstance(each, Word):
            if piped:
                redirects[-1] += f" {each.source}"
            else:
                command.append(each)
        elif each.lstrip("0123456789") in ("<", ">", ">>", "&>", "&>>", ">&", "<&"):
            target = next(ending, ";")
            shown = target.source if isinstance(target, Word) else target
            redirects.append(f"{each} {shown}")
        elif each in ("|", "|&"):
            redirects.append(each)
            piped = True
        else:
            if command:
                yield Statement(
                    line,
                    text.strip(),
                    command,
                    redirects,
                    each if "&" in each or each == "||" else "",
                )
            line += each == "\n"
            command, redirects, piped = [], [], False


def _array(words: Sequence[Word | str]) -> Sequence[Word]:
    """Return the name of an array that is given its values, as a word whose value nobody knows."""
    first = words[0] if words else ""
    if isinstance(first, Word) and re.match(r"^\w+\+?=$", first.source) and words[1:2] == ["("]:
        return [Word([*first.parts, Expansion("(array)", quoted=True)], first.source)]
    return []
