"""The OAuth tokens of a sink: they are requested, renewed, and stored in a file for other processes."""

import base64
import contextlib
import fcntl
import hashlib
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote_plus

import orjson

from ondatra_dagster.delivery.http.response_status_and_body_decoding import NO_RESPONSE, HttpResponse
from ondatra_dagster.delivery.push.push_config import OAuth2, TextOrVariable, Variable
from ondatra_dagster.future_time_correction import corrected_time
from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import open_lock
from ondatra_dagster.storage.private_files import open_private_file

EXPIRY_MARGIN_SHARE = 0.1  # of a token's life: a token must stay valid while a request takes its time
EXPIRY_MARGIN_SECONDS = 60.0
_TOKEN = re.compile(r"[\x21-\x7e]+")  # the characters that a header allows


class NoTokenError(Exception):
    """An error of a sink that can't get a token; the error's text gives the reason."""

    def __init__(self, reason: str, *, is_temporary: bool = False) -> None:
        super().__init__(reason)
        self.is_temporary = is_temporary  # the server may give a token later


class OAuthTokens(NamedTuple):
    """The tokens from one answer of a token server."""

    access: str
    expires_at: float | None = None  # in seconds since 1970, less a margin; None if unknown
    refresh: str | None = None  # the refresh token for the next request
    asked_at: float = 0.0  # when the tokens were requested, in seconds since 1970

    def __repr__(self) -> str:
        return f"Tokens(expires_at={self.expires_at})"

    def is_expired(self, now: float) -> bool:
        if self.expires_at is None:
            return False
        return corrected_time(self.expires_at, set_at=self.asked_at, now=now) <= now


class TokenRequest(NamedTuple):
    """A form that is posted to a token server. It contains secrets."""

    url: str
    form: Mapping[str, str]
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Question({self.url!r}, {', '.join(self.form)})"


def build_token_request(auth: OAuth2, secret: Callable[[Variable], str], refresh: str | None) -> TokenRequest:
    """Return the request for a token. It has the refresh token if there is one."""

    def resolve_value(value: TextOrVariable) -> str:
        return secret(value) if isinstance(value, Variable) else value

    form = {name: resolve_value(value) for name, value in auth.params}
    if refresh:
        form |= {"grant_type": "refresh_token", "refresh_token": refresh}
    else:
        form["grant_type"] = "client_credentials"
    if auth.scope:
        form["scope"] = auth.scope
    client_id = resolve_value(auth.client_id)
    client_secret = secret(auth.client_secret) if auth.client_secret else None
    if auth.client_auth == "basic" and client_secret:
        # both are quoted as in a form, so that a colon in the id stays part of the id
        credentials = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()
        return TokenRequest(auth.token_url, form, {"authorization": f"Basic {base64.b64encode(credentials).decode()}"})
    form["client_id"] = client_id
    if client_secret:
        form["client_secret"] = client_secret
    return TokenRequest(auth.token_url, form, {})


def parse_token_response(answer: HttpResponse, *, now: float) -> OAuthTokens:
    """Return the tokens in the token server's answer; raise NoTokenError if it has none that can be used."""
    if not answer.is_success:
        raise _token_refusal(answer)
    fields = _parse_object(answer.text)
    access, kind, refresh = fields.get("access_token"), fields.get("token_type"), fields.get("refresh_token")
    if not isinstance(access, str) or not _TOKEN.fullmatch(access):
        raise NoTokenError("its answer has no access_token that could be sent")
    if isinstance(kind, str) and kind.casefold() != "bearer":
        raise NoTokenError(f"it gives tokens of the type {kind!r}, but only Bearer tokens can be used")
    return OAuthTokens(access, _renewal_time(fields.get("expires_in"), now), str(refresh) if refresh else None, now)


def _token_refusal(answer: HttpResponse) -> NoTokenError:
    if answer.status_for_push == NO_RESPONSE:
        return NoTokenError(answer.text, is_temporary=not answer.is_refused)
    fields = _parse_object(answer.text)
    reason = ", ".join(str(fields[name]) for name in ("error", "error_description") if fields.get(name))
    message = f"it answered {answer.status_code}" + (f": {reason}" if reason else "")
    return NoTokenError(message, is_temporary=answer.is_retryable)


def _parse_object(text: str) -> Mapping[str, object]:
    """Return the JSON object in the text.

    Return an empty one if the text is no JSON object, or has an invalid value such as an infinite number.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _renewal_time(expires_in: object, now: float) -> float | None:
    """Return when to request the next token. None means that this token is used until the API refuses it."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | str):
        return None
    try:
        seconds = float(expires_in)  # some servers send expires_in as text
    except (ValueError, OverflowError):
        return None
    if not 0 < seconds < math.inf:
        return None
    return now + seconds - min(EXPIRY_MARGIN_SECONDS, seconds * EXPIRY_MARGIN_SHARE)


class TokenFile:
    """The file with the newest tokens that came from one refresh token. One process at a time requests new tokens."""

    def __init__(self, folder: Path, *name_parts: str) -> None:
        name = hashlib.blake2b("\n".join(name_parts).encode(), digest_size=16).hexdigest()
        self._path = folder / f"{name}.json"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from requesting tokens in the `with` block.

        A server may treat a second use of a refresh token as a theft.
        """
        path = self._path.with_suffix(".lock")
        with explain_file_errors(path):
            lock = open_lock(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def load_tokens(self) -> OAuthTokens | None:
        """Return the tokens that were stored last; None if the file is missing or can't be read as tokens."""
        try:
            with explain_file_errors(self._path), contextlib.suppress(FileNotFoundError):
                return OAuthTokens(**orjson.loads(self._path.read_bytes()))
        except (orjson.JSONDecodeError, TypeError):
            pass
        return None

    def store_tokens(self, tokens: OAuthTokens) -> None:
        """Store new tokens by an atomic write. They are used only after that."""
        new_path = self._path.with_suffix(".new")
        with explain_file_errors(self._path):
            new_path.unlink(missing_ok=True)
            with open_private_file(new_path, "xb") as file:
                file.write(orjson.dumps(tokens._asdict()))
                file.flush()
                os.fsync(file.fileno())
            new_path.replace(self._path)


FAILURE_PAUSE_SECONDS = 30.0  # a token server that is down isn't asked again for each row


class TokenSource:
    """The source of one sink's tokens."""

    def __init__(
        self,
        auth: OAuth2,
        *,
        secret: Callable[[Variable], str],
        send_request: Callable[[TokenRequest], HttpResponse],
        learn: Callable[[str], None],
        clock: Callable[[], float],
        folder: Path | None = None,
    ) -> None:
        self._auth = auth
        self._secret_value = secret
        self._send_token_request = send_request
        self._add_secret = learn
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: OAuthTokens | None = None
        refresh_token = secret(auth.refresh_token) if auth.refresh_token else None
        self._configured_refresh_token = self._refresh_token = refresh_token
        self._file = TokenFile(folder, auth.token_url, refresh_token) if folder and refresh_token else None
        self._failure = ""
        self._paused_since = self._paused_until = 0.0

    def __repr__(self) -> str:
        return f"TokenSource({self._auth.token_url!r})"

    def current_token(self) -> str:
        """Return a token that should be valid, and request one if needed. Raise NoTokenError if that fails."""
        with self._lock:
            if self._tokens is None or self._tokens.is_expired(self._clock()):
                return self._renew_tokens(None).access
            return self._tokens.access

    def replace_token(self, refused_token: str) -> str:
        """Return a token in place of the refused one.

        The first thread that needs it requests a new one for all threads.
        """
        with self._lock:
            if self._tokens is None or self._tokens.access == refused_token:
                return self._renew_tokens(refused_token).access
            return self._tokens.access

    def _renew_tokens(self, refused_token: str | None) -> OAuthTokens:
        now = self._clock()
        if now < corrected_time(self._paused_until, set_at=self._paused_since, now=now):
            raise NoTokenError(self._failure)
        if self._file is None:
            return self._request_tokens()
        with self._file.lock():
            stored_tokens = self._file.load_tokens()
            if stored_tokens:
                self._store_tokens(stored_tokens)
                if stored_tokens.access != refused_token and not stored_tokens.is_expired(self._clock()):
                    return stored_tokens
            tokens = self._request_tokens()
            if self._refresh_token != self._configured_refresh_token:
                self._file.store_tokens(tokens._replace(refresh=self._refresh_token))
            return tokens

    def _request_tokens(self) -> OAuthTokens:
        answer = self._send_token_request(build_token_request(self._auth, self._secret_value, self._refresh_token))
        try:
            tokens = parse_token_response(answer, now=self._clock())
        except NoTokenError as error:
            raise self._record_failure(error) from None  # the original error may show secrets
        self._store_tokens(tokens)
        return tokens

    def _store_tokens(self, tokens: OAuthTokens) -> None:
        for secret in (tokens.access, tokens.refresh):
            if secret:
                self._add_secret(secret)
        self._tokens = tokens
        self._refresh_token = tokens.refresh or self._refresh_token

    def _record_failure(self, error: NoTokenError) -> NoTokenError:
        """Pause the token requests, and return the error to raise.

        After a refusal the pause lasts for the rest of the run.
        """
        message = f"no token from {self._auth.token_url}: {error}"
        if not error.is_temporary:
            credentials = (self._auth.client_id, self._auth.client_secret, self._auth.refresh_token)
            message += (
                f"; look at {', '.join(variable.name for variable in credentials if isinstance(variable, Variable))}"
            )
        self._tokens = None
        self._failure = message
        self._paused_since = self._clock()
        self._paused_until = self._paused_since + FAILURE_PAUSE_SECONDS if error.is_temporary else float("inf")
        return NoTokenError(message)
