"""The return values of push(), parsed into an outcome for each row."""

import pytest

from ondatra_dagster.delivery.http.redaction import Redactor
from ondatra_dagster.delivery.push.push_config import BATCH_MODES as CONFIGURABLE
from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.push.push_return_values import parse_error, parse_push_return
from ondatra_dagster.delivery.row_outcome import RowOutcome, Verdict
from ondatra_dagster.errors import PushContractError

KEYS = ["1:insert", "2:update_preimage", "2:update_postimage"]


def result_of(returned: object, *, secrets: tuple[str, ...] = ()) -> PushResult:
    return parse_push_return("sync", returned, KEYS, Redactor(secrets).redact)


def test_every_row_of_the_batch_gets_its_outcome() -> None:
    """The two images of an update have separate statuses."""
    result = result_of({"1:insert": "ok", "2:update_preimage": "ok", "2:update_postimage": "reject: no"})

    expected = {
        "1:insert": RowOutcome(Verdict.OK),
        "2:update_preimage": RowOutcome(Verdict.OK),
        "2:update_postimage": RowOutcome(Verdict.REJECT, "no"),
    }
    assert PushResult(outcomes=expected) == result


def test_a_row_without_status_does_not_affect_the_others() -> None:
    """The rows with a status keep it."""
    outcomes = result_of({"1:insert": "ok"}).outcomes

    assert RowOutcome(Verdict.OK) == outcomes["1:insert"]
    assert RowOutcome.for_missing_status("2:update_preimage") == outcomes["2:update_preimage"]


def test_a_key_that_is_not_in_the_batch_is_a_warning() -> None:
    """It changes nothing, but its row probably lacks a status."""
    result = result_of({**dict.fromkeys(KEYS, "ok"), "9:insert": "error: x", 4: "ok"})

    assert dict.fromkeys(KEYS, RowOutcome(Verdict.OK)) == result.outcomes
    (warning,) = result.warnings
    assert "2 rows" in warning
    assert "'9:insert', 4" in warning


def test_keys_of_another_form_are_shown_once_for_the_whole_batch() -> None:
    """The message has the returned key, and an example of a correct one."""
    outcomes = result_of({20420: "ok", 20421: "ok"}).outcomes
    (message,) = {outcome.message for outcome in outcomes.values()}

    assert message == (
        "push() returned 20420 and 1 more key, which are not rows of this batch; a key is the string"
        " \"rowid:change_type\", such as '1:insert'"
    )


def test_a_single_key_of_another_form_matches_no_row() -> None:
    """The other rows keep their status."""
    outcomes = result_of({"1:insert": "ok", 2: "ok"}).outcomes

    assert RowOutcome(Verdict.OK) == outcomes["1:insert"]
    assert outcomes["2:update_preimage"].message.startswith(
        "push() returned 2, which is not a row of this batch; a key is the string"
    )
    assert outcomes["2:update_preimage"].message.endswith("such as '2:update_preimage'")


@pytest.mark.parametrize("returned", [None, [], "ok", 3])
def test_a_value_that_is_not_a_dict_is_an_error_for_all_rows(returned: object) -> None:
    """It is unknown what the author meant."""
    result = result_of(returned)

    assert set(KEYS) == set(result.outcomes)
    assert {(Verdict.ERROR, False)} == {(outcome.verdict, outcome.is_from_push) for outcome in result.outcomes.values()}


def test_an_exception_in_push_is_an_error_for_the_whole_batch() -> None:
    """Every row's message has the cause."""
    result = parse_error(PushContractError("lib/crm.star:4: no"), KEYS)

    assert result.has_raised
    assert dict.fromkeys(KEYS, RowOutcome(Verdict.ERROR, "lib/crm.star:4: no", is_from_push=False)) == result.outcomes


def test_no_secret_gets_into_a_message() -> None:
    """APIs repeat what they received, and push() puts answers into statuses and even into keys."""
    result = result_of({"1:insert": "error: bad token s3cr3t-key", "s3cr3t-key": "ok"}, secrets=("s3cr3t-key",))

    assert RowOutcome(Verdict.ERROR, "bad token ***") == result.outcomes["1:insert"]
    assert "s3cr3t-key" not in str(result)


def test_an_empty_dict_has_another_meaning_in_each_batch_mode() -> None:
    """It means that each row lacks a status, that push returned a wrong value, or that there is a job."""
    results = {mode: parse_push_return(mode, {}, KEYS, str) for mode in CONFIGURABLE}

    assert {"sync": None, "atomic": None, "async": "{}"} == {
        name: parsed_return.job_reference for name, parsed_return in results.items()
    }
    assert results["sync"].outcomes != results["atomic"].outcomes
