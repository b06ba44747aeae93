"""The rules of language in CONTRIBUTING.md, as far as a program can check them: docstrings, comments, documents."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
CODE_FOLDERS = ("ondatra_dagster", "ondatra_project", "bench", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "tests" / "README.md"])
MEASURED_PAGES = {"docs/bench.md", "docs/bench-kinds.md"}  # written by `make bench`
MAX_WORDS = 30

# words that say something only to those who know what is meant, or that say nothing
BANNED_WORDS = re.compile(
    r"\b(beside|anew|amiss|stands|comes to|(is|are) told|goes? again|sets? aside|lets? go|in the end|by and by"
    r"|of its own accord|what isn't|as it is|as they were|for good|somebody|nobody|whoever|mend(s|ed|ing)?)\b",
    re.IGNORECASE,
)
FIRST_WORDS_OF_NO_SENTENCE = re.compile(r"(Of|What|Who|That|Whoever)\b(?!.*\?$)")
# the first word of a function's docstring is a verb, and none of these is one
NO_VERB = re.compile(
    r"(A|An|The|All|Each|Every|Any|Some|No|None|Not|One|Two|Both|Other|Another|Such|Only|Same|More|Most|Much|Many"
    r"|What|Who|Whether|How|Where|When|Which|That|Why|If|Else|Also|So|And|Or|But|Without|Of|In|On|By|With|For|From|To"
    r"|At|As|Is|Has|Are|It|Its|They|Their|This|These|Those|There|True|False|[^A-Z].*|[A-Z]+[a-z]*(?<!s)s)\b"
)
NOUN_WITH_ARTICLE = re.compile(r"(A|An|The|Two|Three|Four|Five|`|[A-Z][\w-]*s\b)")
WORD = re.compile(r"\S*\w\S*")

EXCEPTIONS: dict[str, str] = {}


class Text(NamedTuple):
    """A docstring, a comment or a line of a document, and where it is."""

    place: str
    text: str


def test_every_function_docstring_begins_with_a_verb() -> None:
    wrong = [
        text
        for text, node in docstrings()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("test_")  # the docstring of a test is an expectation: "The run fails."
        and NO_VERB.match(text.text)
    ]
    assert [] == report(wrong)


def test_every_class_and_module_docstring_begins_with_a_noun() -> None:
    wrong = [
        text
        for text, node in docstrings()
        if isinstance(node, ast.Module | ast.ClassDef) and not NOUN_WITH_ARTICLE.match(text.text)
    ]
    assert [] == report(wrong)


@pytest.mark.parametrize("folder", CODE_FOLDERS)
def test_docstrings_and_comments_are_plain(folder: str) -> None:
    texts = [text for text, _ in docstrings() if text.place.startswith(folder)] + list(comments(folder))
    assert [] == report(problem for text in texts for problem in sentence_problems(text))


def test_messages_are_plain() -> None:
    assert [] == report(problem for text in messages() for problem in sentence_problems(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain(page: Path) -> None:
    if str(page.relative_to(ROOT)) in MEASURED_PAGES:
        return
    assert [] == report(problem for text in paragraphs(page) for problem in sentence_problems(text))


def test_the_glossary_is_short() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 40


def test_each_exception_is_used_and_has_a_reason() -> None:
    everything = "\n".join(
        path.read_text(encoding="utf-8")
        for path in [*PAGES, *(p for f in CODE_FOLDERS for p in (ROOT / f).rglob("*.py"))]
    )
    assert len(EXCEPTIONS) <= 25
    assert [] == [text for text, reason in EXCEPTIONS.items() if text not in everything or not reason]


def docstrings() -> Iterator[tuple[Text, ast.AST]]:
    for path, source in sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield Text(f"{path.relative_to(ROOT)}:{node.body[0].lineno}", text), node


def comments(folder: str) -> Iterator[Text]:
    for path, source in sources():
        if path.is_relative_to(ROOT / folder):
            for token in tokenize.generate_tokens(io.StringIO(source).readline):
                if token.type == tokenize.COMMENT and not token.string.startswith(("#!", "# noqa", "# type:")):
                    yield Text(f"{path.relative_to(ROOT)}:{token.start[0]}", token.string.lstrip("# "))


def messages() -> Iterator[Text]:
    """Yield the package's strings of several words, which users see. Values in f-strings count as one word."""
    for path, source in sources():
        if not path.is_relative_to(ROOT / "ondatra_dagster"):
            continue
        tree = ast.parse(source)
        parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                words = "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
                words = node.value
            else:
                continue
            if " " in words and "\n" not in words:  # a docstring with several lines is checked above; so is SQL
                yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", words)


def sources() -> Iterator[tuple[Path, str]]:
    for folder in CODE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.read_text(encoding="utf-8")


def paragraphs(page: Path) -> Iterator[Text]:
    """Yield the paragraphs, list items and table cells of a page, without its code."""
    is_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            for cell in line.split(" | ") if line.startswith("|") else [line]:
                text = re.sub(r"\]\([^)]*\)", "]", cell.strip("|#-*> "))
                if text:
                    yield Text(f"{page.relative_to(ROOT)}:{number}", text)


def sentence_problems(text: Text) -> Iterator[Text]:
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\"(])|\n\s*\n|\n(?=[\s│├└])", text.text):
        words = re.sub(r"\s+", " ", sentence).strip()
        prose = re.sub(r"`[^`]*`|\"[^\"]*\"", "x", words)
        if len(WORD.findall(prose)) > MAX_WORDS:
            yield Text(text.place, f"over {MAX_WORDS} words: {words}")
        if FIRST_WORDS_OF_NO_SENTENCE.match(words):
            yield Text(text.place, f"begins with {words.split()[0]}: {words}")
        if banned := BANNED_WORDS.search(prose):
            yield Text(text.place, f"{banned[0]!r}: {words}")


def report(wrong: Iterator[Text] | list[Text]) -> list[str]:
    return [
        f"{text.place}: {text.text.splitlines()[0]}"
        for text in wrong
        if not any(exception in text.text for exception in EXCEPTIONS)
    ]
