"""The nearest right word."""

from ondatra_dagster.project.spelling_suggestions import find_nearest, suggest_correction


def test_the_nearest_word_is_found_without_regard_to_case():
    assert find_nearest("MERG", ["merge", "table"]) == "merge"


def test_a_word_like_no_other_has_no_nearest():
    """A far-fetched guess misleads more than none."""
    assert find_nearest("xyz", ["merge", "table"]) is None


def test_likeness_can_be_asked_for():
    """ONDATRA_SINK_TOKEN is somebody's secret, not a misspelled ONDATRA_SINKS."""
    assert find_nearest("ONDATRA_SINK_TOKEN", ["ONDATRA_SINKS"], likeness=0.9) is None
    assert find_nearest("ONDATRA_SINK", ["ONDATRA_SINKS"], likeness=0.9) == "ONDATRA_SINKS"


def test_a_correction_names_the_nearest_and_all():
    expected = "did you mean 'merge'? the kinds are merge, table"
    assert expected == suggest_correction("merg", ["table", "merge"], plural="kinds")


def test_a_correction_without_a_guess_still_names_all():
    assert suggest_correction("xyz", ["table", "merge"], plural="kinds") == "the kinds are merge, table"


def test_a_correction_of_many_is_cut_short():
    """A message with 500 model names helps nobody."""
    text = suggest_correction("m7", [f"m{n:03}" for n in range(500)], plural="models")
    assert text.endswith("m018, m019, …")


def test_nothing_to_choose_from_is_said():
    assert suggest_correction("x", [], plural="sinks") == "there are no sinks yet"
