"""The order of a project's models."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ondatra_dagster.project.model_order_and_dependencies import find_reachable, reverse_edges, sort_topologically


def test_each_model_comes_after_its_inputs():
    assert (["c", "b", "a"], []) == sort_topologically({"a": ["b"], "b": ["c"], "c": []})


def test_the_order_does_not_depend_on_the_order_of_the_files():
    """Plans and pages should be the same everywhere."""
    one = sort_topologically({"a": [], "b": [], "c": ["b", "a"]})
    other = sort_topologically({"c": ["a", "b"], "b": [], "a": []})
    assert one == other


def test_a_cycle_is_returned_with_its_path():
    _, cycles = sort_topologically({"c": ["a"], "b": ["c"], "a": ["b"]})
    assert [["a", "b", "c", "a"]] == cycles


def test_a_model_that_reads_itself_is_a_cycle():
    assert [["a", "a"]] == sort_topologically({"a": ["a"]})[1]


def test_every_cycle_is_found():
    _, cycles = sort_topologically({"a": ["b"], "b": ["a"], "x": ["y"], "y": ["x", "a"]})
    assert [["a", "b", "a"], ["x", "y", "x"]] == sorted(cycles)


def test_an_input_outside_the_graph_is_not_an_edge():
    """Files and sources are inputs, but they don't decide the order."""
    assert (["a"], []) == sort_topologically({"a": ["elsewhere"]})


def test_reachable_models_follow_edges_and_exclude_the_start():
    graph = {"a": ["b"], "b": ["c"], "c": ["d"], "d": []}
    assert {"b", "c", "d"} == find_reachable(graph, "a")
    assert {"b"} == find_reachable(graph, "a", steps=1)
    assert set() == find_reachable(graph, "a", steps=0)
    assert set() == find_reachable(graph, "d")


def test_a_reversed_graph_lists_the_readers():
    assert {"a": [], "b": ["a"], "c": ["a", "b"]} == reverse_edges({"a": ["b", "c"], "b": ["c"], "c": []})


def test_a_long_chain_is_sorted():
    """There is no recursion: 5,000 models in a row are read like any other project."""
    chain = {str(n): [str(n + 1)] for n in range(5000)} | {"5000": []}
    order, cycles = sort_topologically(chain)
    assert ("5000", "0", []) == (order[0], order[-1], cycles)
    assert len(find_reachable(chain, "0")) == 5000


@given(st.dictionaries(st.integers(0, 8), st.lists(st.integers(0, 8), max_size=4), max_size=9))
def test_any_graph_is_sorted_except_for_its_cycles(numbers):
    """Whatever users write, loading ends, and a graph without cycles is in order."""
    graph = {str(key): [str(value) for value in values] for key, values in numbers.items()}
    order, cycles = sort_topologically(graph)
    assert sorted(graph) == sorted(order)
    for cycle in cycles:
        assert all(after in graph[before] for before, after in itertools.pairwise(cycle))
        assert cycle[0] == cycle[-1] == min(cycle)
    if not cycles:
        place = {id_: index for index, id_ in enumerate(order)}
        assert all(place[read] < place[id_] for id_ in graph for read in graph[id_] if read in graph)
