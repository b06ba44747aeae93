"""Which model comes before which."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ondatra_dagster.project.graph import in_order, reach, turned_round


def test_each_comes_after_what_it_reads():
    assert (["c", "b", "a"], []) == in_order({"a": ["b"], "b": ["c"], "c": []})


def test_the_order_does_not_depend_on_how_the_files_are_found():
    """Plans and pages should read the same everywhere."""
    one = in_order({"a": [], "b": [], "c": ["b", "a"]})
    other = in_order({"c": ["a", "b"], "b": [], "a": []})
    assert one == other


def test_a_cycle_is_given_with_its_path():
    _, cycles = in_order({"c": ["a"], "b": ["c"], "a": ["b"]})
    assert [["a", "b", "c", "a"]] == cycles


def test_a_model_that_reads_itself_is_a_cycle():
    assert [["a", "a"]] == in_order({"a": ["a"]})[1]


def test_every_knot_is_found():
    _, cycles = in_order({"a": ["b"], "b": ["a"], "x": ["y"], "y": ["x", "a"]})
    assert [["a", "b", "a"], ["x", "y", "x"]] == sorted(cycles)


def test_what_is_not_in_the_graph_is_no_edge():
    """Files and sources are inputs, but nothing is ordered by them."""
    assert (["a"], []) == in_order({"a": ["elsewhere"]})


def test_reach_follows_edges_and_leaves_out_the_start():
    graph = {"a": ["b"], "b": ["c"], "c": ["d"], "d": []}
    assert {"b", "c", "d"} == reach(graph, "a")
    assert {"b"} == reach(graph, "a", steps=1)
    assert set() == reach(graph, "a", steps=0)
    assert set() == reach(graph, "d")


def test_a_graph_turned_round_says_who_reads():
    assert {"a": [], "b": ["a"], "c": ["a", "b"]} == turned_round({"a": ["b", "c"], "b": ["c"], "c": []})


def test_a_long_chain_is_no_trouble():
    """No recursion: 5,000 models in a row are read like any other project."""
    chain = {str(n): [str(n + 1)] for n in range(5000)} | {"5000": []}
    order, cycles = in_order(chain)
    assert ("5000", "0", []) == (order[0], order[-1], cycles)
    assert len(reach(chain, "0")) == 5000


@given(st.dictionaries(st.integers(0, 8), st.lists(st.integers(0, 8), max_size=4), max_size=9))
def test_any_graph_is_ordered_but_for_the_edges_of_its_cycles(numbers):
    """Whatever users write, loading ends, and an order without cycles is kept."""
    graph = {str(key): [str(value) for value in values] for key, values in numbers.items()}
    order, cycles = in_order(graph)
    assert sorted(graph) == sorted(order)
    for cycle in cycles:
        assert all(after in graph[before] for before, after in itertools.pairwise(cycle))
        assert cycle[0] == cycle[-1] == min(cycle)
    if not cycles:
        place = {id_: index for index, id_ in enumerate(order)}
        assert all(place[read] < place[id_] for id_ in graph for read in graph[id_] if read in graph)
