"""The API dict of a sink, read without running the file. All problems are reported at once."""

import re

import pytest

from ondatra_dagster.delivery.push.api_dict_parser import parse_api_text
from ondatra_dagster.delivery.push.push_config import (
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    OAuth2,
    ParamAuth,
    PushConfig,
    PushSettings,
    RateLimitConfig,
    Variable,
)

WHOLE = """
API = {
    "base_url": "https://api.test/v1",
    "auth": {"env": "KEY"},
    "headers": {"X-Team": "red", "X-Token": {"env": "TOKEN"}},
    "timeout": 5,
    "retry": 0,
    "backoff": 0.5,
    "allow_hosts": ["files.test", "localhost:8080"],
    "env": ["REGION", "KEY"],
    "rate_limit": {"requests": 100, "per": "10s"},
    "destination": "HubSpot",
    "object": "Contact",
    "push": {
        "batch_size": 50,
        "batch_mode": "atomic",
        "max_concurrent": 4,
        "on_batch_error": "bisect",
        "poll_interval": "45s",
        "poll_timeout": "2h",
        "max_attempts": 3,
        "args": ["team", "list_id"],
        "supported_kinds": ["merge", "tracked"],
        "decimals": "number",
        "time_limit": "1.5m",
    },
}
"""


def config_of(text: str) -> PushConfig:
    config, problems = parse_api_text(text, "lib/crm.star")
    assert [] == list(problems)
    assert config is not None
    return config


def problems_of(text: str) -> list[str]:
    config, problems = parse_api_text(text, "lib/crm.star")
    assert config is None
    return [str(problem) for problem in problems]


def test_every_key_is_read() -> None:
    """The names of the parsed fields have the units."""
    expected = PushConfig(
        name="crm",
        file="lib/crm.star",
        base_url="https://api.test/v1",
        auth=BearerAuth(Variable("KEY")),
        headers=(("X-Team", "red"), ("X-Token", Variable("TOKEN"))),
        timeout_seconds=5,
        retry=0,
        backoff_seconds=0.5,
        allow_hosts=("files.test", "localhost:8080"),
        env=("REGION", "KEY"),
        rate_limit=RateLimitConfig(requests=100, per_seconds=10),
        destination="HubSpot",
        object="Contact",
        push=PushSettings(
            batch_size=50,
            batch_mode="atomic",
            max_concurrent=4,
            on_batch_error="bisect",
            poll_interval_seconds=45,
            poll_timeout_seconds=7200,
            max_attempts=3,
            args=("team", "list_id"),
            supported_kinds=("merge", "tracked"),
            decimals="number",
            time_limit_seconds=90,
        ),
    )
    assert expected == config_of(WHOLE)
    assert ("KEY", "TOKEN", "REGION") == expected.variables


@pytest.mark.parametrize("text", ["", "API = {}", "X = {'retry': 'no'}"])
def test_each_key_may_be_left_out(text: str) -> None:
    """The records then use the file's name as the destination."""
    assert PushConfig(name="crm", file="lib/crm.star", destination="crm", object="crm") == config_of(text)


def test_the_defaults_are_cautious() -> None:
    """They are one batch at a time, and eight tries over a day. A user who wants it faster changes them."""
    config = config_of("")
    assert (30, 3, 1) == (config.timeout_seconds, config.retry, config.backoff_seconds)
    assert config.push == PushSettings(
        batch_size=100,
        batch_mode="sync",
        max_concurrent=1,
        on_batch_error="keep",
        poll_interval_seconds=30,
        poll_timeout_seconds=3600,
        max_attempts=8,
        args=(),
        supported_kinds=(),
        decimals="string",
        time_limit_seconds=300,
    )


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        ('{"env": "A"}', BearerAuth(Variable("A"))),
        ('{"env": "A", "header": "X-Api-Key"}', HeaderAuth(Variable("A"), "X-Api-Key")),
        ('{"env": "A", "param": "api_key"}', ParamAuth(Variable("A"), "api_key")),
        ('{"user": {"env": "A"}, "pass": {"env": "B"}}', BasicAuth(Variable("A"), Variable("B"))),
        ('{"user": "me", "pass": {"env": "B"}}', BasicAuth("me", Variable("B"))),
        ('{"provider": "hubspot"}', BearerAuth(Variable("ONDATRA_OAUTH_TOKEN_HUBSPOT"))),
        ('{"provider": "google-ads.v2"}', BearerAuth(Variable("ONDATRA_OAUTH_TOKEN_GOOGLE_ADS_V2"))),
        (
            '{"oauth2": {"token_url": "https://login.test/t", "client_id": "me", "client_secret": {"env": "B"}}}',
            OAuth2(token_url="https://login.test/t", client_id="me", client_secret=Variable("B")),
        ),
        (
            """{"oauth2": {
                "token_url": "/t", "client_id": {"env": "A"}, "refresh_token": {"env": "B"},
                "scope": ["a", "b"], "client_auth": "basic", "params": {"audience": "x", "k": {"env": "C"}},
            }}""",
            OAuth2(
                token_url="/t",
                client_id=Variable("A"),
                refresh_token=Variable("B"),
                scope="a b",
                client_auth="basic",
                params=(("audience", "x"), ("k", Variable("C"))),
            ),
        ),
    ],
)
def test_auth_has_many_forms(auth: str, expected: Auth) -> None:
    """None of them contains the secret itself, and the config knows the variables."""
    config = config_of(f'API = {{"base_url": "https://x.test", "auth": {auth}}}')

    assert expected == config.auth
    assert set(config.variables) == set(re.findall(r"name='(\w+)'", repr(expected)))


def test_a_token_url_without_a_host_needs_a_base_url() -> None:
    """Otherwise the mistake would show only when the first row is sent."""
    oauth2 = '{"token_url": "/t", "client_id": "me", "client_secret": {"env": "B"}}'
    (problem,) = problems_of(f'API = {{"auth": {{"oauth2": {oauth2}}}}}')

    assert "token_url is the path '/t', of no host; give API a base_url" in problem


@pytest.mark.parametrize(
    ("per", "seconds"), [("500ms", 0.5), ("1s", 1.0), ("2 m", 120.0), ("1h", 3600.0), ("0.5s", 0.5)]
)
def test_durations_have_units(per: str, seconds: float) -> None:
    """A number alone would not say which unit is meant."""
    limit = config_of(f'API = {{"rate_limit": {{"requests": 1, "per": "{per}"}}}}').rate_limit

    assert RateLimitConfig(requests=1, per_seconds=seconds) == limit


def test_all_problems_are_reported_with_their_lines() -> None:
    """One run of validate shows everything that the user has to fix."""
    problems = problems_of(
        'API = {\n  "base_urll": "https://x.test",\n  "retry": "3",\n'
        '  "push": {\n    "batch_mode": "asink",\n    "batch_size": 1.5,\n  },\n}'
    )

    assert [
        "lib/crm.star:2: 'base_urll' is not a key of API; did you mean 'base_url'?",
        "lib/crm.star:3: '3' is not a whole number of at least 0; write a whole number of at least 0",
        "lib/crm.star:5: 'asink' is not one of the batch modes; did you mean 'async'?"
        " the batch modes are async, atomic, sync",
        "lib/crm.star:6: 1.5 is not a whole number of at least 0; write a whole number of at least 0",
    ] == [problem.split(" the keys here")[0].rstrip() for problem in problems]


@pytest.mark.parametrize(
    "entry",
    [
        '"base_url": "api.test"',
        '"base_url": "ftp://api.test"',
        '"base_url": "https://me:pw@api.test"',
        '"base_url": "https://api.test?x=1"',
        '"base_url": "https://api.test:99999"',
        '"base_url": "https://[api"',
        '"base_url": 3',
        '"auth": "s3cr3t"',
        '"auth": {}',
        '"auth": {"env": "A", "header": "X", "param": "x"}',
        '"auth": {"user": "me", "pass": "s3cr3t"}',
        '"auth": {"oauth2": {}}',
        '"auth": {"oauth2": {"token_url": "https://x.test/t", "client_id": "me"}}',
        '"auth": {"oauth2": {"token_url": "https://x.test/t", "client_secret": {"env": "B"}}}',
        '"auth": {"oauth2": {"token_url": "//x.test/t"}}',
        '"auth": {"oauth2": {"token_url": "https://me@x.test/t"}}',
        '"auth": {"oauth2": {"client_secret": "s3cr3t"}}',
        '"auth": {"oauth2": {"client_auth": "header"}}',
        '"auth": {"oauth2": {"tokenurl": "x"}}',
        '"auth": {"oauth2": {"scope": 3}}',
        '"auth": {"provider": "a b"}',
        '"auth": {"provider": "a", "env": "B"}',
        '"auth": {"env": 3}',
        '"headers": {"X": 3}',
        '"headers": {"X y": "z"}',
        '"headers": {"X": {"envv": "Z"}}',
        '"headers": ["X"]',
        '"timeout": 0',
        '"timeout": True',
        '"timeout": 1e999',
        '"retry": -1',
        '"retry": 1.5',
        '"backoff": None',
        '"allow_hosts": "files.test"',
        '"allow_hosts": ["https://files.test"]',
        '"env": [3]',
        '"rate_limit": {"requests": 5}',
        '"rate_limit": {"per": "5s"}',
        '"rate_limit": {"requests": 5, "per": "5"}',
        '"rate_limit": {"requests": 5, "per": "0s"}',
        '"rate_limit": 5',
        '"destination": ""',
        '"push": []',
        '"push": {"args": ["rows"]}',
        '"push": {"args": ["a", "a"]}',
        '"push": {"args": ["a b"]}',
        '"push": {"supported_kinds": ["merg"]}',
        '"push": {"decimals": "float"}',
        '"push": {"time_limit": 300}',
        '"push": {"max_concurrent_": 1}',
        '"retry": RETRY',
        '"retry": 1, "retry": 2',
        "**OTHER",
        "3: 4",
    ],
)
def test_a_wrong_entry_is_refused_when_the_file_is_loaded(entry: str) -> None:
    """The message has the line and what to do."""
    (problem,) = problems_of(f"\nAPI = {{\n  {entry}\n}}")

    assert problem.startswith("lib/crm.star:3: ")
    assert "; " in problem


@pytest.mark.parametrize("text", ["API = make()", "API = 3", "API = {k: 1 for k in 'a'}"])
def test_the_api_dict_may_only_have_literals(text: str) -> None:
    """The file isn't run for it."""
    (problem,) = problems_of(text)

    assert "API is not a dict of literals" in problem


def test_a_secret_in_the_file_is_not_in_the_message() -> None:
    """Messages are written to logs."""
    (problem,) = problems_of('API = {"auth": {"user": "me", "pass": "s3cr3t"}}')

    assert "s3cr3t" not in problem


def test_a_syntax_error_is_one_problem_with_its_line() -> None:
    (problem,) = problems_of("\ndef push(:\n")

    assert problem.startswith("lib/crm.star:2: can't be read: ")


@pytest.mark.parametrize(
    ("push", "why"),
    [
        ('{"on_batch_error": "bisect"}', 'write "batch_mode": "atomic", or leave "on_batch_error" out'),
        ('{"max_concurrent": 0}', "write a whole number from 1 to 64"),
        ('{"max_concurrent": 65}', "write a whole number from 1 to 64"),
    ],
)
def test_push_settings_without_an_effect_or_out_of_range_are_refused(push: str, why: str) -> None:
    """The author wanted an effect, so they must not be ignored."""
    assert [why] == [problem.rpartition("; ")[2] for problem in problems_of(f'API = {{"push": {push}}}')]
