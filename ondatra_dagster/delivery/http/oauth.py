"""Access tokens: asked for when one is needed, shared by the threads of a sync, renewed when outdated.

They live in memory, and where the server rotates refresh tokens in a TokenFile. How a question is sent is a
port; a token is told to whoever masks secrets before anything else is done with it.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from ondatra_dagster.clock_jumps import time_that_counts
from ondatra_dagster.delivery.http.http_answer import Answer
from ondatra_dagster.delivery.http.token_file import TokenFile
from ondatra_dagster.delivery.http.token_grant import NoTokenError, Question, Tokens, question, read_tokens
from ondatra_dagster.delivery.push.push_config import OAuth2, Variable

SILENT_SECONDS = 30.0  # a token server that is down isn't asked again for each row


class TokenSource:
    """The tokens of one sink."""

    def __init__(
        self,
        auth: OAuth2,
        *,
        secret: Callable[[Variable], str],
        ask: Callable[[Question], Answer],
        learn: Callable[[str], None],
        clock: Callable[[], float],
        folder: Path | None = None,
    ) -> None:
        self._auth = auth
        self._secret = secret
        self._ask = ask
        self._learn = learn
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: Tokens | None = None
        self._given = self._refresh = secret(auth.refresh_token) if auth.refresh_token else None
        self._file = TokenFile(folder, auth.token_url, self._given) if folder and self._given else None
        self._failure = ""
        self._silent_since = self._silent_until = 0.0

    def __repr__(self) -> str:
        return f"TokenSource({self._auth.token_url!r})"

    def current(self) -> str:
        """A token that should be good, or NoTokenError."""
        with self._lock:
            if self._tokens is None or self._tokens.is_outdated(self._clock()):
                return self._renewed(None).access
            return self._tokens.access

    def instead_of(self, refused: str) -> str:
        """Another token; of all the threads that come with a refused one, the first renews it for all."""
        with self._lock:
            if self._tokens is None or self._tokens.access == refused:
                return self._renewed(refused).access
            return self._tokens.access

    def _renewed(self, refused: str | None) -> Tokens:
        now = self._clock()
        if now < time_that_counts(self._silent_until, set_at=self._silent_since, now=now):
            raise NoTokenError(self._failure)
        if self._file is None:
            return self._asked()
        with self._file.alone():
            kept = self._file.read()
            if kept:
                self._take(kept)
                if kept.access != refused and not kept.is_outdated(self._clock()):
                    return kept
            tokens = self._asked()
            if self._refresh != self._given:
                self._file.write(tokens._replace(refresh=self._refresh))
            return tokens

    def _asked(self) -> Tokens:
        answer = self._ask(question(self._auth, self._secret, self._refresh))
        try:
            tokens = read_tokens(answer, now=self._clock())
        except NoTokenError as error:
            raise self._given_up(error) from None  # what it was read from may hold secrets
        self._take(tokens)
        return tokens

    def _take(self, tokens: Tokens) -> None:
        for secret in (tokens.access, tokens.refresh):
            if secret:
                self._learn(secret)
        self._tokens = tokens
        self._refresh = tokens.refresh or self._refresh

    def _given_up(self, error: NoTokenError) -> NoTokenError:
        """Nobody is asked again for a while; after a refusal not at all by this run."""
        why = f"no token from {self._auth.token_url}: {error}"
        if not error.is_passing:
            why += f"; look at {', '.join(self._variables())}"
        self._tokens = None
        self._failure = why
        self._silent_since = self._clock()
        self._silent_until = self._silent_since + SILENT_SECONDS if error.is_passing else float("inf")
        return NoTokenError(why)

    def _variables(self) -> list[str]:
        said = (self._auth.client_id, self._auth.client_secret, self._auth.refresh_token)
        return [value.name for value in said if isinstance(value, Variable)]
