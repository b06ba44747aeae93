"""The HTML builder: text in a page is always escaped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.projects.ui_client import _PageParser as Parser

from ondatra_dagster.ui.html_builder import Html, document, element


def made(html: Html) -> str:
    return html.encode().decode()


def test_an_element_has_its_attributes_and_content() -> None:
    link = element("a", "a & b", 7, None, href="/x?a=1&b=2", class_="key", aria_label='"quoted"', hidden=True)
    assert '<a href="/x?a=1&amp;b=2" class="key" aria-label="&quot;quoted&quot;" hidden>a &amp; b7</a>' == made(link)


def test_an_omitted_attribute_is_not_written() -> None:
    """An empty attribute and a missing one have different meanings."""
    assert '<input name="" value="0">' == made(element("input", name="", value=0, checked=False, id=None))


def test_elements_contain_elements_at_any_depth() -> None:
    rows = (element("li", text) for text in ("<", "b"))
    assert "<ul><li>&lt;</li><li>b</li><br></ul>" == made(element("ul", [rows, [element("br")]]))


def test_html_can_not_be_inserted_as_text() -> None:
    """In a text it would be escaped twice, or not at all."""
    assert "Html(9 characters)" == f"{element('b', 'no')}"


def test_a_document_is_complete() -> None:
    assert made(document(element("head"), element("body", "x"))).startswith('<!doctype html>\n<html lang="en">')


def test_half_a_character_is_no_error() -> None:
    """A bug can leave one, and then the user wants to read the rest of the text."""
    assert b"<p>?</p>" == element("p", "\ud800").encode()


@given(st.text(st.characters(exclude_characters="\r\x00", exclude_categories=("Cs",))))
def test_any_text_is_read_back_unchanged(text: str) -> None:
    """In an element and in an attribute, a browser reads exactly this text and no other element."""
    parser = Parser()
    parser.feed(made(element("p", text, title=text)))
    parser.close()
    assert ([("p", {"title": text})], text) == (parser.elements, "".join(parser.texts))


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>", "</p><p>"])
def test_hostile_text_creates_no_element(text: str) -> None:
    assert "<" not in made(element("p", text))[3:-4]
