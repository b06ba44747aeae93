"""All rules of the push contract, in the order in which their sentences are told."""

from collections.abc import Callable, Iterator

from ondatra_dagster.testing.conformance.calm_rules import (
    a_batch_that_is_run_again_makes_the_same_calls,
    batches_of_any_size_come_to_the_same,
    every_row_gets_its_status,
    finalize_tells_whether_it_was_taken,
    the_api_ends_with_what_the_table_has,
)
from ondatra_dagster.testing.conformance.case import PushCase
from ondatra_dagster.testing.conformance.fault_rules import (
    a_failure_is_called_what_it_is,
    a_refused_call_is_told,
    one_failed_call_is_made_good,
)
from ondatra_dagster.testing.conformance.play import Stage
from ondatra_dagster.testing.conformance.value_rules import (
    a_null_is_a_value,
    an_odd_key_stays_in_its_place,
)

Rule = Callable[[Stage, PushCase], Iterator[str]]

FIRST: tuple[Rule, ...] = (every_row_gets_its_status,)
RULES: tuple[Rule, ...] = (
    batches_of_any_size_come_to_the_same,
    the_api_ends_with_what_the_table_has,
    a_batch_that_is_run_again_makes_the_same_calls,
    finalize_tells_whether_it_was_taken,
    one_failed_call_is_made_good,
    a_refused_call_is_told,
    a_failure_is_called_what_it_is,
    a_null_is_a_value,
    an_odd_key_stays_in_its_place,
)
