"""The suggestion of the nearest right word."""

from ondatra_dagster.project.spelling_suggestions import find_nearest, suggest_correction


def test_the_nearest_word_is_found_in_any_case():
    assert find_nearest("MERG", ["merge", "table"]) == "merge"


def test_a_word_similar_to_no_other_has_no_nearest_word():
    """A wrong suggestion is worse than none."""
    assert find_nearest("xyz", ["merge", "table"]) is None


def test_the_caller_may_require_a_likeness():
    """ONDATRA_SINK_TOKEN is a secret of the user, not a misspelled ONDATRA_SINKS."""
    assert find_nearest("ONDATRA_SINK_TOKEN", ["ONDATRA_SINKS"], likeness=0.9) is None
    assert find_nearest("ONDATRA_SINK", ["ONDATRA_SINKS"], likeness=0.9) == "ONDATRA_SINKS"


def test_a_correction_names_the_nearest_word_and_all_words():
    expected = "did you mean 'merge'? the kinds are merge, table"
    assert expected == suggest_correction("merg", ["table", "merge"], plural="kinds")


def test_a_correction_without_a_nearest_word_names_all_words():
    assert suggest_correction("xyz", ["table", "merge"], plural="kinds") == "the kinds are merge, table"


def test_a_long_correction_is_cut_off():
    """A message with 500 model names doesn't help the user."""
    text = suggest_correction("m7", [f"m{n:03}" for n in range(500)], plural="models")
    assert text.endswith("m018, m019, …")


def test_an_empty_list_of_words_is_reported():
    assert suggest_correction("x", [], plural="sinks") == "there are no sinks yet"
